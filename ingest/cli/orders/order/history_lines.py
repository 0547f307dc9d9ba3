"""The history of an order as lines of text."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingest.cli.terminal.text import printable

if TYPE_CHECKING:
    from ingest.domain.orders.order_history import HistoryEntry, OrderHistory

_LONGEST_ERROR = 500


def lines_of(history: "OrderHistory") -> Iterator[str]:
    """A line for each event, the oldest first."""
    if not history.entries:
        return
    yield "  history:" if history.before is None else "  history, the newest events:"
    for entry in reversed(history.entries):
        yield f"    {_moment(entry.at)}  {_about(entry)}"


def _about(entry: "HistoryEntry") -> str:
    from ingest.domain.orders.order_history import HistoryEvent

    by = f" by {printable(entry.by, 100)}" if entry.by else ""
    match entry.event:
        case (
            HistoryEvent.ENQUEUED
            | HistoryEvent.REPLAYED
            | HistoryEvent.REFETCHED
            | HistoryEvent.REMAPPED
            | HistoryEvent.ERASED
        ):
            return f"{entry.event}{by}"
        case HistoryEvent.RETRIED:
            due = f"; next attempt at {_moment(entry.next_at)}" if entry.next_at else ""
            return f"{_attempt(entry)} failed: {_why(entry)}{due}"
        case HistoryEvent.DEAD_LETTERED:
            return f"{_attempt(entry)} failed: {_why(entry)}; dead-lettered"
        case HistoryEvent.SKIPPED:
            return f"{_attempt(entry)}: the transform returned no order"
        case stored:
            version = f", version {_moment(entry.version)}" if entry.version else ""
            announced_as = f", enqueued as {printable(entry.announced_as, 200)}" if entry.announced_as else ""
            return f"{_attempt(entry)}: {stored}{version}{announced_as}"


def _attempt(entry: "HistoryEntry") -> str:
    request = "pushed document" if entry.took is None else f"request of {entry.took:.3f} s"
    if entry.took is None and entry.error is not None:
        request = "no request"
    return f"attempt {entry.attempt} ({request}, {printable(entry.worker or '', 64)})"


def _why(entry: "HistoryEntry") -> str:
    return ": ".join(filter(None, (printable(entry.reason or "", 64), printable(entry.error or "", _LONGEST_ERROR))))


def _moment(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f}"[:-3]
