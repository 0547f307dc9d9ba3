"""The one table of what this process holds: every delivery from when it is read until it is settled, released or lost.

A delivery takes a slot as long as its task runs: until it is fetched and its order waits for its batch, or until it is
moved or released. Its entry stays in the table, and its lease is renewed, until it is settled.

Nothing here outlives the process: what was in flight is pending in Redis under this consumer's name.
"""

import asyncio
from collections.abc import Callable, Iterable

from ingest.domain.delivery import Delivery, EntryRef
from ingest.flow.clock import steady
from ingest.flow.task_pool import Processing, TaskPool
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Gauge

_log = get_logger("in_flight")


class _Held:
    """One delivery that this process holds.

    Attributes:
        since: when it was read, by the table's clock.
        is_decided: whether it has an outcome, which is being applied.
    """

    __slots__ = ("delivery", "is_decided", "since", "task")

    def __init__(self, delivery: Delivery, task: asyncio.Task[None], since: float) -> None:
        self.delivery = delivery
        self.task = task
        self.since = since
        self.is_decided = False


class InFlight:
    """What one process holds.

    Attributes:
        tasks: those that run now; each takes a slot.

    Args:
        gauge: shows how many slots are taken.
        clock: seconds, for the age of leases.
    """

    def __init__(self, gauge: Gauge, *, clock: Callable[[], float] = steady) -> None:
        self._gauge = gauge
        self._clock = clock
        self._held: dict[EntryRef, _Held] = {}
        self.tasks: set[asyncio.Task[None]] = set()
        self._pool = TaskPool(self._freed)
        self._slot_observer: Callable[[], None] = _ignore
        self._fewer: asyncio.Event | None = None

    def __len__(self) -> int:
        """How many entries are held."""
        return len(self._held)

    def held(self, *, min_age: float = 0.0) -> list[Delivery]:
        """The deliveries held for at least `min_age` seconds."""
        before = self._clock() - min_age
        return [held.delivery for held in self._held.values() if held.since <= before]

    def undecided(self) -> list[tuple[Delivery, asyncio.Task[None]]]:
        """The deliveries without an outcome, each with the task that processes, or has processed, it."""
        return [(held.delivery, held.task) for held in self._held.values() if not held.is_decided]

    def holds(self, delivery: Delivery) -> bool:
        """Whether this delivery is still ours, as far as we know."""
        held = self._held.get(delivery.entry)
        return held is not None and held.delivery is delivery

    def observe_slots(self, observer: Callable[[], None]) -> None:
        """Call `observer` whenever a slot becomes free."""
        self._slot_observer = observer

    def start(self, delivery: Delivery, processing: Processing) -> None:
        """Hold a delivery, and process it; it takes a slot until it is processed.

        After a failover Redis may hand out another entry under an ID that is held: the older delivery is lost then.
        """
        self._hold(delivery, self._pool.start(processing))

    def start_apart(self, delivery: Delivery, processing: Processing) -> asyncio.Task[None]:
        """As `start`, in a task that ends when the delivery is processed."""
        task = asyncio.create_task(processing)
        task.add_done_callback(self._freed)
        self._hold(delivery, task)
        return task

    def close(self) -> None:
        """Let the tasks end when they have processed what they have: nothing is started any more."""
        self._pool.close()

    def decided(self, delivery: Delivery) -> None:
        """The delivery has an outcome; it is held until that is applied."""
        held = self._held.get(delivery.entry)
        if held is not None and held.delivery is delivery:
            held.is_decided = True

    def remove(self, delivery: Delivery) -> None:
        """The delivery is settled, or dropped after a bug: hold it no longer."""
        held = self._held.get(delivery.entry)
        if held is not None and held.delivery is delivery:
            del self._held[delivery.entry]
            if self._fewer is not None:
                self._fewer.set()

    def lose(self, entries: Iterable[EntryRef]) -> None:
        """Others have claimed these entries: stop processing them, and settle none of them."""
        for entry in entries:
            held = self._held.pop(entry, None)
            if held is None:
                continue  # settled while the renewal was on its way
            _log.warning("lease_lost", entry_id=entry.id)
            if not held.is_decided:
                held.task.cancel()
            if self._fewer is not None:
                self._fewer.set()

    async def until_at_most(self, count: int) -> None:
        """Wait until no more than `count` entries are held."""
        while len(self._held) > count:
            fewer = self._fewer = self._fewer or asyncio.Event()
            fewer.clear()
            await fewer.wait()

    def _hold(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        if delivery.entry in self._held:
            self.lose([delivery.entry])
        self._held[delivery.entry] = _Held(delivery, task, self._clock())
        self.tasks.add(task)
        self._gauge.set(len(self.tasks))

    def _freed(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        self._gauge.set(len(self.tasks))
        self._slot_observer()


def _ignore() -> None:
    pass
