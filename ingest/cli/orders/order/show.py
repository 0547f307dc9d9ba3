"""`ingest order show`: shows where orders are, and what happened to them."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.options import OrderIds, Sources, parse_ids
from ingest.cli.orders.order.history_lines import lines_of
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable, printable_json
from ingest.cli.terminal.times import format_age, format_time
from ingest.cli.terminal.width import wrapped
from ingest.domain.errors import StoreUnavailable
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.orders.order_history import OrderHistory
    from ingest.domain.orders.order_state import OrderState
    from ingest.operations.backends import Backends

_LONGEST_ERROR = 500


def show(
    ids: OrderIds,
    *,
    source: Sources = None,
    history: Annotated[
        int, typer.Option(help="Show at most N events of the history, the newest.", metavar="N", min=0, max=500)
    ] = 20,
    thorough: Annotated[bool, typer.Option("--thorough", help="Search all entries of a long queue.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the stored order.")] = False,
) -> None:
    """Show where orders are, and what happened to them.

    It searches the database and the queue, and changes nothing. With INGEST_HISTORY, it also shows who enqueued the order, and
    each attempt.

    Of long queues, about 10,000 entries are searched, and the command reports that. Add `--thorough` to search all entries.
    That takes about ten seconds for a million entries.

    With several sources, all are searched, because they may use the same IDs. Each place where an order is found is shown.

    The exit code is 1 if an order is not found.

    Examples:
    `ingest order show 536365` shows whether the order is stored, queued, in flight (in which worker, since when),
    waiting for its next attempt (when, and why), dead (with its reason) or erased. It may be several of these.

    `ingest order show '#1001' -- -1002` quotes an ID for the shell. IDs that begin with `-` come after `--`.

    `ingest order show 536365 --source shop-de` searches one source only.

    `ingest order show 536365 536366 --json | jq -r 'select(.ingestion.state == "dead") | .order_id'` prints those
    that are dead. With `--json`, each line is a JSON object.

    `ingest order show 536365 --history 500` shows more of a long history.

    `ingest order show 536365 --thorough` searches the whole queue.
    """
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.operations.stored_orders.order_places import QUICKLY_SEARCHED, locate

    order_ids = parse_ids(ids)
    sources = [*backends_of_sources(source).values()]
    most = 0 if thorough else QUICKLY_SEARCHED
    states = run_with_progress("searching the queue", partial(locate, sources, order_ids, most=most))
    known = [state.order_id for state in states if state.is_known]
    events = run_interruptible(_histories(sources, list(dict.fromkeys(known)), history)) if history and known else {}
    with standard_output() as stream:
        for state in states:
            found = events.get((state.source, state.order_id))
            if not as_json:
                stream.writelines(wrapped(line, stream, "    ") + "\n" for line in _as_text(state, found))
            elif state.is_known or not state.searched or len(sources) == 1:
                stream.write(_as_json(state, found))
    missing = [each for each in order_ids if not any(state.is_known for state in states if state.order_id == each)]
    problems = list(dict.fromkeys((state.source, state.problem) for state in states if state.problem))
    for order_id in missing:
        if not as_json or len(sources) > 1:
            nowhere = (
                "nowhere" if not problems else "neither in the database nor in the part of the queue that was searched"
            )
            say(f"order {order_id} is found {nowhere}")
    for of_source, problem in problems:
        say(f"{of_source}: {problem}" if of_source else problem)
    if problems:
        say(f"`{_thorough(order_ids, source or ())}` searches all of them")
    raise typer.Exit(1 if missing else 0)


async def _histories(
    sources: "Sequence[Backends]", order_ids: Sequence[str], limit: int
) -> "dict[tuple[str, str], OrderHistory]":
    from ingest.operations.stored_orders.history import histories

    try:
        return await histories(sources, order_ids, limit)
    except StoreUnavailable as error:
        # The table may be missing before the next migration, or a role may lack the right to read it.
        say(f"the history cannot be read: {error}")
        return {}


def _as_json(state: "OrderState", history: "OrderHistory | None") -> str:
    import msgspec
    from msgspec.structs import asdict

    from ingest.operations.stored_orders.order_json import shown

    events = [*reversed(history.entries)] if history is not None else []
    return printable_json(msgspec.json.encode(asdict(shown(state)) | {"history": events}).decode()) + "\n"


def _as_text(state: "OrderState", history: "OrderHistory | None") -> Iterator[str]:
    if not state.is_known:
        return
    of_source = f" of {state.source}" if state.source else ""
    is_stored_at_least = state.row is not None and not state.searched and not state.entries and not state.erased_at
    summary = "stored (queue searched in part)" if is_stored_at_least else state.state.value.replace("_", " ")
    yield f"order {state.order_id}{of_source}: {summary}"
    if state.erased_at is not None:
        yield f"  erased {_since(state.erased_at)}"
    if state.row is not None:
        if (updated_at := _ahead(state.row)) is not None:
            yield (
                f"  its updated_at, {format_time(updated_at)}, is more than a day ahead of the clock: its version is the time of the fetch"
            )
        yield f"  stored {_since(state.row['row']['ingested_at'])}, status {printable(state.row['order']['status'], 64)}"
    yield from lines_of(history) if history is not None else ()
    for entry in state.entries:
        yield f"  {_entry(entry)}"


def _thorough(order_ids: Sequence[str], sources: Sequence[str]) -> str:
    """The command that searches all entries, for the shell."""
    options = [part for source in sources for part in ("--source", source)]
    end_of_options = ["--"] if any(each.startswith("-") for each in order_ids) else []
    return shlex.join(["ingest", "order", "show", "--thorough", *options, *end_of_options, *order_ids])


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
