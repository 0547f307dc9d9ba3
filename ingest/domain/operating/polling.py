"""Polling: the position up to which a source's list of orders has been read, and the result of one reading."""

from datetime import datetime

import msgspec


class PollTurn(msgspec.Struct, frozen=True):
    """The turn of a process to read a list. It lasts as long as its lease is renewed.

    Attributes:
        position: all orders that changed before this time, by the shop's clock, have been enqueued or stored.
        fence: number of the turn. Only the last one can change the position.
        failures: readings that have failed since the last success.
        error: of the last one, or None.
        looked_back_at: when the list was last read further back, or None.
        shown_until: the list has shown orders with times up to this one, or None before the first reading. If it has become empty, readings
            begin here.
        newest: the newest time that it has shown, if any.
        behind: seconds by which the times in the list are behind the shop's clock.
        listed: orders of the last successful reading.
        is_recovered: whether no position was recorded, although orders are stored.
    """

    position: datetime
    fence: int
    failures: int
    error: str | None
    looked_back_at: datetime | None
    shown_until: datetime | None = None
    newest: datetime | None = None
    behind: float = 0.0
    listed: int = 0
    is_recovered: bool = False

    @property
    def is_without_result(self) -> bool:
        """Whether all readings before it have failed, so that the position is of our clock."""
        return self.fence == self.failures + 1


class PollState(msgspec.Struct, frozen=True):
    """The polling of one source, as recorded for all processes.

    Attributes:
        source: name of the source.
        position: see `PollTurn`.
        due_in: seconds until the next reading, or until the lease of the current one ends. 0 or less if it is due.
        is_reading: whether a process is reading the list.
        holder: the process that had the last turn.
        looked_at: end of the last successful reading, or None.
        looked_ago: seconds since then, or None.
        failures: readings that have failed since.
        error: of the last one, or None.
        behind: see `PollTurn`.
    """

    source: str
    position: datetime
    due_in: float
    is_reading: bool
    holder: str
    looked_at: datetime | None
    looked_ago: float | None
    failures: int
    error: str | None
    behind: float = 0.0


class PollResult(msgspec.Struct, frozen=True):
    """What a successful reading records.

    Attributes:
        position: see `PollTurn`, as are the others.
        looked_back: whether the list was read further back.
    """

    position: datetime
    shown_until: datetime | None = None
    newest: datetime | None = None
    behind: float = 0.0
    listed: int = 0
    looked_back: bool = False


class PollCounts(msgspec.Struct):
    """The elements of one reading.

    Attributes:
        listed: orders in the period.
        enqueued: missing or newer than stored.
        waiting: the same, but still in the queue, so that they needed no entry.
        unchanged: stored as listed, or erased.
        skipped: no orders by the mapping.
        pages: requests.
    """

    listed: int = 0
    enqueued: int = 0
    waiting: int = 0
    unchanged: int = 0
    skipped: int = 0
    pages: int = 0
