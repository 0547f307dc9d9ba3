"""`ingest order show`: shows where orders are."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.order.ids import Ids, parse_ids
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.orders.order_state import OrderState
    from ingest.operations.backends import Backends

_LONGEST_ERROR = 500


def show(
    ids: Ids,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with the stored order.")] = False,
) -> None:
    """Show where orders are: in the database and in the queue. Changes nothing.

    The exit code is 1 if an order is found nowhere.

    Examples:
    `ingest order show 536365` shows whether the order is stored, queued, in flight (in which worker, since when),
    waiting for its next attempt (when, and why), dead (with its reason) or erased. It may be several of these.

    `ingest order show 536365 536366 --json | jq -r 'select(.ingestion.state == "dead") | .order_id'` is for
    scripts: one JSON object per line.

    The whole queue is searched, which takes about ten seconds for a million entries.
    """
    from ingest.cli.common import say, start
    from ingest.cli.terminal.output import standard_output
    from ingest.cli.terminal.width import wrapped
    from ingest.operations.backends import Backends

    order_ids = parse_ids(ids)
    states = run_interruptible(_locate(Backends.of(start()), order_ids))
    with standard_output() as stream:
        for state in states:
            if as_json:
                stream.writelines(_as_json(state))
            else:
                stream.writelines(wrapped(line, stream, "    ") + "\n" for line in _as_text(state))
    for state in states:
        if not state.is_known and not as_json:
            say(f"order {state.order_id} is found nowhere")
    raise typer.Exit(0 if all(state.is_known for state in states) else 1)


async def _locate(backends: "Backends", order_ids: Sequence[str]) -> "list[OrderState]":
    from ingest.cli.terminal.progress import ProgressDisplay
    from ingest.operations.orders import locate

    with ProgressDisplay("searching the queue") as display:
        return await locate(backends, order_ids, on_progress=display.update)


def _as_json(state: "OrderState") -> Iterator[str]:
    import msgspec

    from ingest.cli.terminal.text import printable_json
    from ingest.operations.orders import as_object

    yield printable_json(msgspec.json.encode(as_object(state)).decode()) + "\n"


def _as_text(state: "OrderState") -> Iterator[str]:
    if not state.is_known:
        return
    yield f"order {state.order_id}: {state.state.value.replace('_', ' ')}"
    if state.erased_at is not None:
        yield f"  erased {_since(state.erased_at)}"
    if state.row is not None:
        if (updated_at := _ahead(state.row)) is not None:
            yield (
                f"  its updated_at, {_at(updated_at)}, is more than a day ahead of the clock: its version is the time of the fetch"
            )
        yield f"  stored {_since(state.row['row']['ingested_at'])}, status {_safe(state.row['order']['status'], 64)}"
    for entry in state.entries:
        yield f"  {_entry(entry)}"


def _entry(entry: Any) -> str:
    from ingest.domain.orders.order_state import DeadEntry, InFlightEntry, QueuedEntry

    match entry:
        case QueuedEntry():
            return f"queued in the {entry.lane} lane as {entry.entry_id}, announced {_since(entry.announced_at)}"
        case InFlightEntry():
            return (
                f"in flight in {_safe(entry.worker, 64)} as {entry.entry_id} of the {entry.lane} lane, delivery"
                f" {entry.deliveries}, lease renewed {_since(entry.renewed_at)}, announced {_since(entry.announced_at)}"
            )
        case DeadEntry():
            return f"dead letter {entry.entry_id} {_since(entry.dead_at)}: {_why(entry.reason, entry.error)}"
        case retry:
            return (
                f"retrying: attempt {retry.attempt} at {_at(retry.next_try_at)}, as {_safe(retry.entry_id, 100)}:"
                f" {_why(retry.reason, retry.error)}"
            )


def _ahead(row: Any) -> Any:
    """The order's own time, if it is too far ahead to be its version."""
    from ingest.domain.orders.order_row import MOST_AHEAD

    updated_at, fetched_at = row["order"]["updated_at"], row["row"]["fetched_at"]
    return updated_at if updated_at is not None and updated_at - fetched_at > MOST_AHEAD else None


def _why(reason: str, error: str) -> str:
    return ": ".join(filter(None, (_safe(reason, 64), _safe(error, _LONGEST_ERROR)))) or "for an unknown reason"


def _safe(text: str, limit: int) -> str:
    from ingest.cli.terminal.text import printable

    return printable(text, limit)


def _at(moment: Any) -> str:
    from ingest.cli.terminal.times import format_time

    return format_time(moment)


def _since(moment: Any) -> str:
    from datetime import UTC, datetime

    from ingest.cli.terminal.times import format_age

    return f"at {_at(moment)} ({format_age(moment, datetime.now(UTC))})"
