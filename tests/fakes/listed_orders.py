# ruff: noqa: ARG002  the arguments are those of the real parts
"""The parts that readings of a list use, in memory: stored orders, the queue, positions, and the record of a backfill.

`tests/contract/ports/test_list_ports.py` runs the same suite on these and on the real ones.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.fetch.list_clock import ListClock
from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.operating.jobs import Job, JobProgress, JobState
from ingest.domain.operating.polling import PollResult, PollState, PollTurn
from ingest.operations.backfill.lane import Lane
from ingest.operations.list_pages import announced
from ingest.store.orders import listed_changes
from ingest.store.orders.rows import StoredFacts
from ingest.store.polls import LEASE


class MemoryRow(msgspec.Struct, frozen=True):
    """A stored order.

    Attributes:
        updated_at: the version.
        fetched_at: when the request for its document began.
        content: anything that differs after a visible change.
    """

    updated_at: datetime
    fetched_at: datetime
    content: bytes

    @property
    def age(self) -> tuple[datetime, datetime]:
        """The sort key of rows of the same order. The greater is the newer."""
        return self.updated_at, self.fetched_at


class MemoryOrders:
    """The stored orders of one source, which implements `Fetches` for `changed_orders`, and `Rows` for reconciliations."""

    def __init__(self) -> None:
        self.rows: dict[str, MemoryRow] = {}

    def store(self, order_id: str, row: MemoryRow) -> None:
        """Store a row, unless the stored one is at least as new."""
        stored = self.rows.get(order_id)
        if stored is None or stored.age < row.age:
            self.rows[order_id] = row

    async def fetch(self, statement: str, *arguments: Any) -> list[Any]:
        """Run the statement of `changed_orders`."""
        assert statement == listed_changes._CHANGED
        _source, ids, _moment, ahead, times, ends, again_before = arguments
        return [*self._changed(zip(ids, times, ends, again_before, strict=True), ahead)]

    def _changed(self, listed: Iterable[tuple[str, Any, Any, Any]], ahead: timedelta) -> Iterator[dict[str, Any]]:
        for order_id, at, ends_at, again_before in listed:
            row = self.rows.get(order_id)
            if (
                row is None
                or at is None
                or at > row.updated_at
                or (again_before is not None and ends_at > row.updated_at and row.fetched_at - ahead < again_before)
            ):
                yield {"order_id": order_id, "is_missing": row is None}

    async def facts(self, order_ids: Sequence[str], clock: ListClock) -> list[StoredFacts]:
        """See `Rows`."""
        found = ((name, self.rows[name]) for name in order_ids if name in self.rows)
        return [StoredFacts(name, row.updated_at, "", Decimal(0), row.fetched_at) for name, row in found]

    async def erased(self, order_ids: Sequence[str]) -> set[str]:
        """See `Rows`."""
        return set()

    async def changed_ids(self, since: datetime, until: datetime) -> AsyncIterator[list[str]]:
        """See `Rows`."""
        yield sorted(name for name, row in self.rows.items() if since <= row.updated_at <= until)


class MemoryQueue(Lane):
    """Announced orders that wait, which implements what readings need of `Producer`, `Lane` and `QueueScanner`.

    Args:
        now: our clock.

    Attributes:
        waiting: with the time of their announcement.
    """

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.waiting: list[tuple[Announcement, datetime]] = []

    async def try_announce(self, orders: Sequence[Announcement], *, coalesce: float = 0.0) -> Accepted:
        """See `Producer`."""
        known = {one.order_id for one, _ in self.waiting if one.document is None} if coalesce else set()
        new = [one for one in orders if one.document is not None or one.order_id not in known]
        self.waiting += [(one, self._now()) for one in new]
        return Accepted(len(new), len(orders) - len(new))

    async def occupied(self) -> int:
        """See `Lane`. Workers are fast."""
        return 0

    async def enqueue(self, orders: Sequence[ListedOrder]) -> None:
        """See `Lane`."""
        await self.try_announce([announced(order, "backfill") for order in orders], coalesce=600.0)

    async def queued(self) -> AsyncIterator[list[Any]]:
        """See `QueueScanner`. Called when no order waits."""
        assert not self.waiting
        for page in list[list[Any]]():
            yield page

    dead = queued


class MemoryPolls:
    """The turn and the position of one source, which implements `Polls`.

    Args:
        now: the clock in seconds.
    """

    def __init__(self, now: Callable[[], float] = float) -> None:
        self._now = now
        self._holder = ""
        self._leased_until = self._next_at = 0.0
        self.position: datetime | None = None
        self.failures = 0
        self.error: str | None = None
        self._fence = 0
        self._looked_back_at: datetime | None = None
        self.result = PollResult(datetime.min)  # noqa: DTZ901  before the first reading

    async def state(self) -> PollState | None:
        """See `Polls`."""
        if self.position is None:
            return None
        due_in, is_reading = max(self._next_at, self._leased_until) - self._now(), self._leased_until > self._now()
        return PollState("", self.position, due_in, is_reading, self._holder, None, None, self.failures, self.error)

    async def take(self, start: datetime, *, is_due: bool = False, holder: str = "") -> PollTurn | None:
        """See `Polls`. The processes share this object, and give their names."""
        now = self._now()
        if (self._leased_until > now and self._holder != holder) or not (is_due or self._next_at <= now):
            return None
        self._holder, self._leased_until = holder, now + LEASE
        self._fence += 1
        self.position = self.position or start
        last = self.result
        return PollTurn(
            self.position,
            self._fence,
            self.failures,
            self.error,
            self._looked_back_at,
            last.shown_until,
            last.newest,
            last.behind,
            last.listed,
        )

    async def renew(self, turn: PollTurn, position: datetime) -> bool:
        """See `Polls`."""
        return self._moved(turn, position, lease=LEASE)

    async def advance(self, turn: PollTurn, result: PollResult, pause: float) -> bool:
        """See `Polls`."""
        if not self._moved(turn, result.position):
            return False
        self.result = result
        return self._counted(0, None, pause)

    async def fail(self, turn: PollTurn, position: datetime, error: str, pause: float) -> bool:
        """See `Polls`."""
        return self._moved(turn, position) and self._counted(self.failures + 1, error, pause)

    async def release(self, turn: PollTurn, position: datetime) -> bool:
        """See `Polls`."""
        return self._moved(turn, position)

    def _counted(self, failures: int, error: str | None, pause: float) -> bool:
        self.failures, self.error, self._next_at = failures, error, self._now() + pause
        return True

    def _moved(self, turn: PollTurn, position: datetime, lease: float = 0.0) -> bool:
        if turn.fence != self._fence:
            return False
        self.position, self._leased_until = position, self._now() + lease
        return True


class MemoryJobs:
    """The record of one job, which implements the part of `Jobs` for its run."""

    def __init__(self) -> None:
        self.progress = JobProgress()
        self.state = JobState.RUNNING
        self.error: str | None = None

    async def renew(self, held: Job, problem: str | None = None) -> None:
        """See `Jobs`."""
        self.error = problem

    async def record(self, held: Job, progress: JobProgress) -> None:
        """See `Jobs`."""
        self.progress = progress

    async def end(
        self, held: Job, state: JobState, progress: JobProgress, error: str | None = None, *result: object
    ) -> None:
        """See `Jobs`."""
        self.progress, self.state, self.error = progress, state, error
