"""`ingest order`: shows where orders are, has them fetched again, and erases them."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import actor, backends_of_source, backends_of_sources, is_confirmed, say
from ingest.cli.options import AsJson, OneSource, OrderIds, Sources, Yes, parse_ids
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import counted, printable, printable_json
from ingest.cli.terminal.times import format_age, format_time
from ingest.cli.terminal.width import wrapped
from ingest.domain.errors import QueueUnavailable, StoreUnavailable, UserError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.orders.order_state import OrderState

COMMANDS = ("show", "refetch", "erase")

_LONGEST_ERROR = 500


def order() -> None:
    """Show where orders are, fetch them again, or erase them.

    Examples:
    `ingest order show 536365` shows whether an order is stored, queued, in flight, waiting for a retry, dead or erased.

    `ingest order refetch 536365` fetches an order again, and stores it whatever its version.

    `ingest order erase 536365` erases an order for good, after asking for confirmation.

    Run `ingest order show --help` for the help of a command.
    """


def show(
    ids: OrderIds,
    *,
    source: Sources = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the stored order.")] = False,
) -> None:
    """Show where orders are, in database and queue.

    It changes nothing.

    With several sources, all are searched, because they may use the same IDs. Each place where an order is found is shown.

    The exit code is 1 if an order is found nowhere.

    Examples:
    `ingest order show 536365` shows whether the order is stored, queued, in flight (in which worker, since when),
    waiting for its next attempt (when, and why), dead (with its reason) or erased. It may be several of these.

    `ingest order show '#1001' -- -1002` quotes an ID for the shell. IDs that begin with `-` come after `--`.

    `ingest order show 536365 --source shop-de` searches one source only.

    `ingest order show 536365 536366 --json | jq -r 'select(.ingestion.state == "dead") | .order_id'` prints those
    that are dead. With `--json`, each line is a JSON object.

    The whole queue is searched, which takes about ten seconds for a million entries.
    """
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.operations.orders import locate

    order_ids = parse_ids(ids)
    sources = [*backends_of_sources(source).values()]
    states = run_with_progress("searching the queue", partial(locate, sources, order_ids))
    with standard_output() as stream:
        for state in states:
            if not as_json:
                stream.writelines(wrapped(line, stream, "    ") + "\n" for line in _as_text(state))
            elif state.is_known or len(sources) == 1:
                stream.write(_as_json(state))
    missing = [each for each in order_ids if not any(state.is_known for state in states if state.order_id == each)]
    for order_id in missing:
        if not as_json or len(sources) > 1:
            say(f"order {order_id} is found nowhere")
    raise typer.Exit(1 if missing else 0)


def refetch(ids: OrderIds, *, source: OneSource = None, as_json: AsJson = False) -> None:
    """Fetch orders again, whatever their version.

    Use it when a stored version is wrong, such as an `updated_at` in the future that keeps every later document out. The orders are
    enqueued in the express lane, so that a worker has to run. The audit log records who did it.

    Examples:
    `ingest order refetch 536365` replaces a stored order by the external API's current one, even if its version is
    older.

    `ingest order refetch 536365 --source shop-de` fetches an order of one source. With several sources, `--source`
    is required.

    `ingest order refetch --json 536365 536366` prints JSON.
    """
    from ingest.operations.refetch import refetch as run

    order_ids = parse_ids(ids)
    backends = backends_of_source(source)
    stored = run_interruptible(run(backends, order_ids, actor()))
    if as_json:
        typer.echo(json.dumps({"source": backends.source, "enqueued": order_ids, "stored": stored}))
    else:
        typer.echo(f"enqueued {counted(len(order_ids), 'order')}, of which {stored:,} had a version that is reset")


def erase(ids: OrderIds, *, source: OneSource = None, yes: Yes = False, as_json: AsJson = False) -> None:
    """Erase orders permanently.

    It erases their rows with the documents, their retries and their dead letters.

    An erased order is not stored again, even if it is enqueued again, queued or in flight. It need not exist. Erasing
    an order again is safe, and finishes an interrupted erasure. The audit log records who has erased it.

    Examples:
    `ingest order erase 536365` erases an order, after asking for confirmation.

    `ingest order erase 536365 --source shop-de` erases an order of one source, and no order of another with the same ID.
    With several sources, `--source` is required.

    `ingest order erase --yes --json 536365 536366` erases without a confirmation, and prints JSON.

    INGEST_POSTGRES_DSN has to name a role that may erase orders: the owner of the tables, or one that
    `ingest migrate --api-role` has granted the rights.
    """
    from ingest.operations.orders import erase as run

    order_ids = parse_ids(ids)
    backends = backends_of_source(source)
    what = counted(len(order_ids), "order") + (f" of {backends.source}" if backends.source else "")
    question = f"This erases {what} for good: rows, documents, retries and dead letters."
    if not yes and not is_confirmed(question, change=f"erase {what} for good"):
        say("nothing was changed")
        raise typer.Exit(1)
    so_far = 0

    def on_progress(count: int) -> None:
        nonlocal so_far
        so_far = count

    def told() -> str:
        return f"{what if so_far == len(order_ids) else f'{so_far:,} of {what}'} erased from the database"

    try:
        erased = run_interruptible(run(backends, order_ids, actor(), on_progress=on_progress))
    except QueueUnavailable as error:
        raise UserError(
            f"{told()}; retries and dead letters may remain: run it again when Redis can be used ({error})"
        ) from error
    except (StoreUnavailable, KeyboardInterrupt) as error:
        if so_far or isinstance(error, KeyboardInterrupt):
            more = "" if so_far == len(order_ids) else "more may be, and "
            say(f"{told()}; {more}retries and dead letters may remain: run it again to finish")
        raise
    if as_json:
        removed = {"rows": erased.rows, "retries": erased.retries, "dead_letters": erased.dead_letters}
        typer.echo(json.dumps({"source": backends.source, "erased": order_ids, "removed": removed}))
    else:
        removed_from_queue = f"{erased.retries:,} {'retry' if erased.retries == 1 else 'retries'}"
        dead_letters = counted(erased.dead_letters, "dead letter")
        typer.echo(f"erased {what}: removed {counted(erased.rows, 'row')}, {removed_from_queue}, {dead_letters}")


def _as_json(state: "OrderState") -> str:
    import msgspec

    from ingest.operations.order_json import as_object

    return printable_json(msgspec.json.encode(as_object(state)).decode()) + "\n"


def _as_text(state: "OrderState") -> Iterator[str]:
    if not state.is_known:
        return
    of_source = f" of {state.source}" if state.source else ""
    yield f"order {state.order_id}{of_source}: {state.state.value.replace('_', ' ')}"
    if state.erased_at is not None:
        yield f"  erased {_since(state.erased_at)}"
    if state.row is not None:
        if (updated_at := _ahead(state.row)) is not None:
            yield (
                f"  its updated_at, {format_time(updated_at)}, is more than a day ahead of the clock: its version is the time of the fetch"
            )
        yield f"  stored {_since(state.row['row']['ingested_at'])}, status {printable(state.row['order']['status'], 64)}"
    for entry in state.entries:
        yield f"  {_entry(entry)}"


def _entry(entry: Any) -> str:
    from ingest.domain.orders.order_state import DeadEntry, InFlightEntry, QueuedEntry

    match entry:
        case QueuedEntry():
            return f"queued in the {entry.lane} lane as {entry.entry_id}, announced {_since(entry.announced_at)}"
        case InFlightEntry():
            return (
                f"in flight in {printable(entry.worker, 64)} as {entry.entry_id} of the {entry.lane} lane, delivery"
                f" {entry.deliveries}, lease renewed {_since(entry.renewed_at)}, announced {_since(entry.announced_at)}"
            )
        case DeadEntry():
            return f"dead letter {entry.entry_id} {_since(entry.dead_at)}: {_why(entry.reason, entry.error)}"
        case retry:
            return (
                f"retrying: attempt {retry.attempt} at {format_time(retry.next_try_at)}, as {printable(retry.entry_id, 100)}:"
                f" {_why(retry.reason, retry.error)}"
            )


def _ahead(row: Any) -> Any:
    """The order's own time, if it is too far ahead to be its version."""
    from ingest.domain.orders.order_row import MOST_AHEAD

    updated_at, fetched_at = row["order"]["updated_at"], row["row"]["fetched_at"]
    return updated_at if updated_at is not None and updated_at - fetched_at > MOST_AHEAD else None


def _why(reason: str, error: str) -> str:
    return ": ".join(filter(None, (printable(reason, 64), printable(error, _LONGEST_ERROR)))) or "for an unknown reason"


def _since(moment: datetime) -> str:
    return f"at {format_time(moment)} ({format_age(moment, datetime.now(UTC))})"
