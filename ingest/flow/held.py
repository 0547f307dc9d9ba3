"""The deliveries that this process holds, from when they are read until they are settled, released or lost.

While a delivery is held, its lease is renewed. If the process dies, its entries are still pending in Redis under the name of its
consumer.
"""

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.clock import steady
from ingest.flow.settle.rows import Item
from ingest.flow.tracing.delivery_traces import DeliveryTraces
from ingest.telemetry.logs import get_logger

_log = get_logger("held")


@dataclass(slots=True, eq=False)
class _Entry:
    """One delivery that this process holds.

    Attributes:
        task: processes it, or has processed it.
        since: when it was read, by the clock of `Held`.
        is_decided: whether it has an outcome, which is being applied.
        is_leaving: whether it is being released: it may be delivered again before Redis confirms the release.
    """

    delivery: Delivery
    task: asyncio.Task[None]
    since: float
    is_decided: bool = False
    is_leaving: bool = False


class Held:
    """The deliveries that one process holds.

    Args:
        clock: seconds, for the age of leases.
        traces: of the deliveries. None without tracing.
    """

    def __init__(self, *, clock: Callable[[], float] = steady, traces: DeliveryTraces | None = None) -> None:
        self._clock = clock
        self.traces = traces or DeliveryTraces()
        self._entries: dict[EntryRef, _Entry] = {}
        self._fewer: asyncio.Event | None = None

    def __len__(self) -> int:
        """How many entries are held."""
        return len(self._entries)

    def add(self, delivery: Delivery, task: asyncio.Task[None]) -> None:
        """Hold a delivery that `task` processes.

        After a failover Redis may hand out another entry under an ID that is held. The older delivery is lost then.
        """
        before = self._entries.get(delivery.entry)
        if before is not None and not before.is_leaving:
            self.lose([delivery.entry])
        self._entries[delivery.entry] = _Entry(delivery, task, self._clock())

    def deliveries(self, *, min_age: float = 0.0) -> list[Delivery]:
        """The deliveries held for at least `min_age` seconds."""
        before = self._clock() - min_age
        return [entry.delivery for entry in self._entries.values() if entry.since <= before]

    def undecided(self) -> list[tuple[Delivery, asyncio.Task[None]]]:
        """The deliveries without an outcome, each with its task."""
        return [(entry.delivery, entry.task) for entry in self._entries.values() if not entry.is_decided]

    def decided_tasks(self) -> set[asyncio.Task[None]]:
        """The tasks that apply an outcome, or have applied it."""
        return {entry.task for entry in self._entries.values() if entry.is_decided}

    def holds(self, delivery: Delivery) -> bool:
        """Whether this process still holds this delivery, as far as it has been informed."""
        return self._entry(delivery) is not None

    def still_held(self, items: Iterable[Item]) -> list[Item]:
        """The items whose deliveries are still held."""
        return [item for item in items if self._entry(item.delivery) is not None]

    def kept(self) -> set[EntryRef]:
        """The entries that are held and not being released."""
        return {ref for ref, entry in self._entries.items() if not entry.is_leaving}

    def mark_decided(self, delivery: Delivery) -> None:
        """The delivery has an outcome. It is held until that is applied."""
        if (entry := self._entry(delivery)) is not None:
            entry.is_decided = True

    def mark_leaving(self, deliveries: Iterable[Delivery]) -> None:
        """The deliveries are being released. They are held until Redis confirms it."""
        for delivery in deliveries:
            if (entry := self._entry(delivery)) is not None:
                entry.is_leaving = True

    def remove(self, *deliveries: Delivery) -> None:
        """Hold deliveries no longer, because they are settled, or dropped after a bug."""
        for delivery in deliveries:
            if self._entry(delivery) is not None:
                del self._entries[delivery.entry]
                self.traces.end(delivery)
        self._notify()

    def lose(self, entries: Iterable[EntryRef]) -> None:
        """Stop processing entries that other processes have claimed, and settle none of them."""
        for ref in entries:
            entry = self._entries.pop(ref, None)
            if entry is None:
                continue  # settled while the renewal was on its way
            _log.warning("lease_lost", entry_id=ref.id)
            self.traces.end(entry.delivery)
            if not entry.is_decided:
                entry.task.cancel()
        self._notify()

    async def until_at_most(self, count: int, *, above: int = 0) -> None:
        """Wait until no more than `count` entries are held that were delivered more than `above` times."""
        while sum(entry.delivery.count > above for entry in self._entries.values()) > count:
            fewer = self._fewer = self._fewer or asyncio.Event()
            fewer.clear()
            await fewer.wait()

    def _entry(self, delivery: Delivery) -> _Entry | None:
        entry = self._entries.get(delivery.entry)
        return entry if entry is not None and entry.delivery is delivery else None

    def _notify(self) -> None:
        if self._fewer is not None:
            self._fewer.set()
