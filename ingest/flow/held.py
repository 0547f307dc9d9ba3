"""The one table of what this process holds: every delivery from when it is read until it is settled, released or lost.

A delivery takes a slot as long as its task runs: until it is fetched and its order waits for its batch, or until it is
moved or released. Its entry stays in the table, and its lease is renewed, until it is settled. What was prefetched waits here
until a slot is free.

Nothing here outlives the process: what was in flight is pending in Redis under this consumer's name.
"""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Iterable

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.clock import steady
from ingest.flow.deliver.task_pool import Processing, TaskPool
from ingest.flow.settle.rows import Item
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Gauge

_log = get_logger("in_flight")

Process = Callable[[Delivery], Processing]


class _Held:
    """One delivery that this process holds.

    Attributes:
        task: what processes it, or has processed it; None while it waits for a slot.
        since: when it was read, by the table's clock.
        is_decided: whether it has an outcome, which is being applied.
        is_leaving: whether it is being released: it may be delivered again before the reply comes that it is.
    """

    __slots__ = ("delivery", "is_decided", "is_leaving", "since", "task")

    def __init__(self, delivery: Delivery, task: asyncio.Task[None] | None, since: float) -> None:
        self.delivery = delivery
        self.task = task
        self.since = since
        self.is_decided = self.is_leaving = False


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
        self._pool = TaskPool(self._following, self._freed)
        self._waiting: deque[tuple[_Held, Process, bool]] = deque()
        self._most_tasks: Callable[[], int] = _unlimited
        self._slot_observer: Callable[[], None] = _ignore
        self._fewer: asyncio.Event | None = None
        self._unused_slots = 0
        self._shown = 0

    def __len__(self) -> int:
        """How many entries are held."""
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How many deliveries wait for a slot."""
        return len(self._waiting)

    def held(self, *, min_age: float = 0.0) -> list[Delivery]:
        """The deliveries held for at least `min_age` seconds."""
        before = self._clock() - min_age
        return [held.delivery for held in self._held.values() if held.since <= before]

    def undecided(self) -> list[tuple[Delivery, asyncio.Task[None] | None]]:
        """The deliveries without an outcome, each with the task that processes, or has processed, it; None if it has none yet."""
        return [(held.delivery, held.task) for held in self._held.values() if not held.is_decided]

    def holds(self, delivery: Delivery) -> bool:
        """Whether this delivery is still ours, as far as we know."""
        held = self._held.get(delivery.entry)
        return held is not None and held.delivery is delivery

    def still_held(self, items: Iterable[Item]) -> list[Item]:
        """Those of the items whose deliveries are still ours, as far as we know."""
        held_of = self._held.get  # inlined, as each order is asked for twice
        return [
            item
            for item in items
            if (held := held_of(item.delivery.entry)) is not None and held.delivery is item.delivery
        ]

    def limit_slots(self, most: Callable[[], int], observer: Callable[[], None]) -> None:
        """Let `start` use at most `most()` slots, and call `observer` whenever a task has ended."""
        self._most_tasks = most
        self._slot_observer = observer

    def start(self, deliveries: Iterable[Delivery], process: Process, *, apart: bool = False) -> None:
        """Hold deliveries, and process each as soon as a slot is free.

        After a failover Redis may hand out another entry under an ID that is held: the older delivery is lost then.

        Args:
            deliveries: what was read.
            process: called with each when it takes its slot.
            apart: each in a task of its own.
        """
        for delivery in deliveries:
            self._waiting.append((self._hold(delivery, None), process, apart))
        self.fill_slots()

    def start_apart(self, delivery: Delivery, processing: Processing) -> asyncio.Task[None]:
        """Hold a delivery, and process it at once, whatever waits, in a task that ends when it is processed."""
        task = self._task(processing)
        self.tasks.add(task)
        self._hold(delivery, task)
        self._show_tasks()
        return task

    def fill_slots(self) -> None:
        """Start those that wait for a slot, as far as there are free ones."""
        waiting, tasks, most = self._waiting, self.tasks, self._most_tasks() + self._unused_slots
        while waiting and len(tasks) < most:
            held, process, apart = waiting.popleft()
            if self._held.get(held.delivery.entry) is held:  # not lost meanwhile
                processing = process(held.delivery)
                held.task = self._task(processing) if apart else self._pool.start(processing)
                tasks.add(held.task)
        if len(tasks) != self._shown:
            self._show_tasks()

    def stop_waiting(self, *, min_age: float = 0.0) -> list[Delivery]:
        """Start none of those that were read at least `min_age` seconds ago and wait for a slot; returns them. They are still held."""
        before = self._clock() - min_age
        stopped = []
        while self._waiting and self._waiting[0][0].since <= before:
            held, _, _ = self._waiting.popleft()
            if self._held.get(held.delivery.entry) is held:  # not lost meanwhile
                stopped.append(held.delivery)
        return stopped

    def close(self) -> None:
        """Let the tasks end when they have processed what they have: nothing is started any more."""
        self.stop_waiting()
        self._pool.close()

    def decided(self, delivery: Delivery) -> None:
        """The delivery has an outcome; it is held until that is applied."""
        held = self._held.get(delivery.entry)
        if held is not None and held.delivery is delivery:
            held.is_decided = True

    def releasing(self, deliveries: Iterable[Delivery]) -> None:
        """These are being released; they are held until that is confirmed."""
        for delivery in deliveries:
            held = self._held.get(delivery.entry)
            if held is not None and held.delivery is delivery:
                held.is_leaving = True

    def kept(self) -> set[EntryRef]:
        """The entries that are held and not being released."""
        return {entry for entry, held in self._held.items() if not held.is_leaving}

    def remove(self, *deliveries: Delivery) -> None:
        """The deliveries are settled, or dropped after a bug: hold them no longer."""
        for delivery in deliveries:
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
            if held.task is not None and not held.is_decided:
                held.task.cancel()
            if self._fewer is not None:
                self._fewer.set()

    async def until_at_most(self, count: int) -> None:
        """Wait until no more than `count` entries are held; the slot of the delivery that waits is another's meanwhile.

        With a single slot, what it waits for would otherwise wait for it.
        """
        self._unused_slots += 1
        self.fill_slots()
        try:
            while len(self._held) > count:
                fewer = self._fewer = self._fewer or asyncio.Event()
                fewer.clear()
                await fewer.wait()
        finally:
            self._unused_slots -= 1

    def _hold(self, delivery: Delivery, task: asyncio.Task[None] | None) -> _Held:
        before = self._held.get(delivery.entry)
        if before is not None and not before.is_leaving:
            self.lose([delivery.entry])
        held = self._held[delivery.entry] = _Held(delivery, task, self._clock())
        return held

    def _task(self, processing: Processing) -> asyncio.Task[None]:
        task = asyncio.create_task(processing)
        task.add_done_callback(self._freed)
        return task

    def _following(self, task: asyncio.Task[None]) -> Processing | None:
        """What a task of the pool processes next. Most often one waits, which takes the slot at once."""
        waiting = self._waiting
        if waiting and len(self.tasks) == self._most_tasks() + self._unused_slots:
            while waiting and not waiting[0][2]:
                held, process, _ = waiting.popleft()
                if self._held.get(held.delivery.entry) is held:  # not lost meanwhile
                    held.task = task
                    self._slot_observer()
                    return process(held.delivery)
        self._freed(task)
        return None

    def _freed(self, task: asyncio.Task[None]) -> None:
        self.tasks.discard(task)
        if self._waiting:
            self.fill_slots()
        else:
            self._show_tasks()
        self._slot_observer()

    def _show_tasks(self) -> None:
        self._shown = len(self.tasks)
        self._gauge.set(self._shown)


def _unlimited() -> int:
    return sys.maxsize


def _ignore() -> None:
    pass
