"""A consumer group in memory: the state that its consumers share, and the actions of tests."""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef
from ingest.domain.deliveries.entry_fields import ATTEMPT, ENQUEUED_AT, ORDER_ID
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.source_state import Reason
from ingest.queue.layout.entries import to_delivery

STREAM = "memory"
Fields = Mapping[bytes, bytes]


@dataclass
class Pending:
    """A delivered entry that is not finished.

    Attributes:
        owner: the consumer that holds it, or None if it was released.
        count: number of deliveries.
        renewed_at: the time at which its lease was last renewed.
    """

    owner: str | None
    count: int
    renewed_at: float


@dataclass(frozen=True)
class Waiting:
    """An entry in the retry set."""

    due: float
    fields: Fields


@dataclass(frozen=True)
class DeadEntry:
    """A dead letter."""

    order_id: str | None
    reason: DeadReason
    error: str
    at: float


@dataclass
class MemoryGroup:
    """The stream, the group's pending list, the retry set, the dead letters and the heartbeats.

    Attributes:
        clock: the clock of the server in seconds, which the test moves. The queue's clock does not follow its steps.
        stream: the entries in the stream.
        undelivered: entries that were not delivered to the group.
        settled: finished entries that are kept for other groups.
        kept_for_others: entries that another group has not finished.
        has_others: whether there is another group.
        moved: moved entries with their orders, because replies may be lost.
        heard_until: the end of each consumer's heartbeat.
        heard_since: the time from which on each consumer may reclaim from others.
        seen: the time of the last call of each member of the group.
        leader: the consumer that does the maintenance, and the end of its term.
        results: orders and outcomes in the results stream.
        outages: each consumer's report, and its expiry.
        erased: orders that were erased.
        is_available: whether calls succeed.
        lost_replies: number of replies to lose for each method, after the call was made.
        refused: number of calls of each method to fail without being made.
        calls: number of calls of each method.
    """

    clock: Callable[[], float]
    stream: dict[EntryRef, Fields] = field(default_factory=dict)
    undelivered: deque[EntryRef] = field(default_factory=deque)
    pending: dict[EntryRef, Pending] = field(default_factory=dict)
    settled: set[EntryRef] = field(default_factory=set)
    kept_for_others: set[EntryRef] = field(default_factory=set)
    has_others: bool = False
    waiting: list[Waiting] = field(default_factory=list)
    dead: list[DeadEntry] = field(default_factory=list)
    results: list[tuple[str, str]] = field(default_factory=list)
    moved: set[tuple[EntryRef, str | None]] = field(default_factory=set)
    heard_until: dict[str, float] = field(default_factory=dict)
    heard_since: dict[str, float] = field(default_factory=dict)
    seen: dict[str, float] = field(default_factory=dict)
    leader: tuple[str, float] = ("", 0.0)
    reasons: dict[str, list[Reason]] = field(default_factory=dict)
    erased: set[str | None] = field(default_factory=set)
    is_available: bool = True
    lost_replies: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    calls: Counter[str] = field(default_factory=Counter)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    _ahead: float = 0.0
    _latest: float = 0.0
    _last_ms: int = 0
    _sequence: int = 0

    # -- actions of tests ---------------------------------------------------------------------------------------

    def add(self, *order_ids: str, **fields: bytes) -> list[EntryRef]:
        """Announce orders."""
        return [self.add_entry({ORDER_ID: order_id.encode(), **_named(fields)}) for order_id in order_ids]

    def add_entry(self, fields: Fields, entry_id: str | None = None) -> EntryRef:
        """Add an entry like a producer. A given ID stands for a server whose clock is behind."""
        entry = EntryRef(STREAM, entry_id or self._next_id())
        self.stream[entry] = fields
        self.undelivered.append(entry)
        if self.has_others:
            self.kept_for_others.add(entry)
        self.changed.set()
        return entry

    def lose(self, entry: EntryRef) -> None:
        """Lose an entry and its pending record, as in a failover."""
        self.stream.pop(entry, None)
        self.pending.pop(entry, None)

    def set_available(self, *, is_available: bool) -> None:
        """Begin or end an outage. A blocked read ends with the connection."""
        self.is_available = is_available
        self.changed.set()

    def is_empty(self) -> bool:
        """Whether nothing is left to do."""
        return not (self.pending or self.undelivered or self.waiting)

    # -- actions of consumers ----------------------------------------------------------------------------------

    def require_available(self) -> None:
        """Raise `QueueUnavailable` during an outage."""
        if not self.is_available:
            raise QueueUnavailable("connection refused")

    def time(self) -> float:
        """The queue's clock in seconds, which does not go back."""
        return max(self.clock() + self._ahead, self._latest)

    def keep_steady(self, bounds: tuple[float, float] | None) -> float:
        """Return the queue's clock, within the times that a process assumes to be possible."""
        now = self.time()
        if bounds is not None and bounds[0] > now + 0.1:
            now = bounds[0]
        elif bounds is not None and now > bounds[1] + 2.0:
            now = max(bounds[1], self._latest)
        if now != self.time():
            self._ahead = now - self.clock()
        self._latest = now
        return now

    async def until_added(self, within: float) -> None:
        """Wait until there is something to read."""
        end = asyncio.get_running_loop().time() + within
        while not self.undelivered and self.is_available:
            self.changed.clear()
            try:
                async with asyncio.timeout_at(end):
                    await self.changed.wait()
            except TimeoutError:
                return

    def delivery(self, entry: EntryRef) -> Delivery:
        """The delivery of a pending entry."""
        return to_delivery(entry.stream, entry.id.encode(), self.stream[entry], self.pending[entry].count)

    def finish(self, entry: EntryRef) -> None:
        """The group needs the entry no more."""
        self.pending.pop(entry, None)
        if self.has_others:
            self.settled.add(entry)
        else:
            self.stream.pop(entry, None)

    def owns(self, name: str, entry: EntryRef) -> bool:
        """Whether the entry is pending for this consumer."""
        return entry in self.pending and self.pending[entry].owner == name

    def may_move(self, name: str, delivery: Delivery) -> bool:
        """Whether its entry is pending for this consumer, and not another order's with the same ID."""
        named = self.stream.get(delivery.entry, delivery.fields).get(ORDER_ID)
        return self.owns(name, delivery.entry) and named == delivery.fields.get(ORDER_ID)

    def is_gone(self, delivery: Delivery) -> bool:
        """Whether the entry is missing from Redis. Its ID may belong to another order."""
        if delivery.entry in self.stream:
            return self.stream[delivery.entry].get(ORDER_ID) != delivery.fields.get(ORDER_ID)
        return delivery.entry not in self.pending

    def reschedule(self, delivery: Delivery, after: float, attempt: int) -> None:
        """Put an order into the retry set."""
        at = {ENQUEUED_AT: b"%d" % (delivery.enqueued_at * 1000), ATTEMPT: b"%d" % attempt}
        self.waiting.append(Waiting(self.time() + after, {**delivery.fields, **at}))
        self.moved.add((delivery.entry, delivery.order_id))

    def may_judge(self, name: str) -> bool:
        """Whether a consumer has been heard for long enough to take others that are stale for dead."""
        now = self.time()
        return name in self.heard_since and self.heard_since[name] <= now < self.heard_until.get(name, 0.0)

    def holds(self, name: str) -> list[EntryRef]:
        """The entries that are pending for a consumer."""
        return [entry for entry, pending in self.pending.items() if pending.owner == name]

    def remove_member(self, name: str) -> None:
        """Forget a consumer that holds nothing."""
        for of in (self.heard_until, self.heard_since, self.seen):
            of.pop(name, None)

    def _next_id(self) -> str:
        now = int(self.clock() * 1000)
        self._last_ms, self._sequence = (now, 0) if now > self._last_ms else (self._last_ms, self._sequence + 1)
        return f"{self._last_ms}-{self._sequence}"


def _named(fields: Mapping[str, bytes]) -> Fields:
    return {name.encode(): value for name, value in fields.items()}
