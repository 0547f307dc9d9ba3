"""The calls of the reader on a queue in memory."""

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from fakes.virtual_time import virtual_time

from ingest.domain.deliveries.clock_bounds import ClockBounds, unknown_time
from ingest.domain.deliveries.delivery import Abandoned, Delivery, EntryRef, Heartbeat
from ingest.domain.errors import QueueUnavailable
from ingest.flow.clock import SharedClock
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held
from ingest.flow.isolation import Isolation
from ingest.flow.read.reader import BLOCK, Batch, Reader
from ingest.flow.read.reclaim import Reclaimer
from ingest.flow.settle.moves import Moves
from ingest.flow.shutdown import Shutdown
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics


def delivery(number: int, count: int = 1) -> Delivery:
    return Delivery(EntryRef("stream", f"{number}-0"), f"order-{number}", 1.0, 1, count, None, {})


@dataclass
class Source:
    """A queue with entries that loses some replies and records calls.

    Attributes:
        undelivered: new entries.
        own: entries that were delivered to this consumer in lost replies.
        largest: entries in a reply, beyond which it is lost.
    """

    undelivered: list[Delivery] = field(default_factory=list)
    own: list[Delivery] = field(default_factory=list)
    largest: int = 10**6
    asked: list[tuple[object, ...]] = field(default_factory=list)
    consumers: int = 1
    may_own_more: bool = False

    async def read(self, count: int, block: float) -> list[Delivery]:
        self.asked.append(("read", count, block))
        taken, self.undelivered = self.undelivered[:count], self.undelivered[count:]
        return self._reply(taken)

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        self.asked.append(("claim_own", count, counted))
        own = [entry for entry in self.own if entry.entry not in known][:count]
        for entry in own:
            self.own.remove(entry)
        return self._reply(own)

    async def claim_abandoned(self, count: int) -> Abandoned:
        self.asked.append(("claim_abandoned", count))
        return Abandoned([], [])

    async def heartbeat(self, lifetime: float, clock: ClockBounds = unknown_time, report: object = None) -> Heartbeat:
        del clock, report
        return Heartbeat(lifetime, is_first=False, leads=False, consumers=self.consumers)

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        self.asked.append(("release", *(entry.entry.id for entry in deliveries)))
        return len(deliveries)

    def _reply(self, taken: list[Delivery]) -> list[Delivery]:
        if len(taken) <= self.largest:
            return taken
        self.own += taken
        raise QueueUnavailable("the reply was lost")

    def of(self, kind: str) -> list[tuple[object, ...]]:
        return [asked for asked in self.asked if asked[0] == kind]


class Unsettled(Source):
    """A queue whose own entries stay pending when they are claimed: nothing is settled."""

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        self.asked.append(("claim_own", count, counted))
        return [entry for entry in self.own if entry.entry not in known][:count]


class Releasing(Source):
    """A queue that delivers released entries again before the reply to the release.

    Attributes:
        has_released: whether the release was made.
        reply: its reply comes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.released: list[Delivery] = []
        self.has_released, self.reply = asyncio.Event(), asyncio.Event()

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        self.released += [msgspec.structs.replace(entry) for entry in deliveries]
        self.has_released.set()
        await self.reply.wait()
        return len(deliveries)

    async def claim_abandoned(self, count: int) -> Abandoned:
        claimed, self.released = self.released[:count], self.released[count:]
        return Abandoned(claimed, [])


class Process:
    """The entries that one process reads and holds."""

    def __init__(self, source: Source, *, isolate_above: int = 3, drawn: float = 1.0) -> None:
        metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
        queue: Any = source
        self.in_flight = Held()
        self.heartbeats = Heartbeats(queue, self.in_flight, 30.0, 9.0, SharedClock())
        self.reclaimer = Reclaimer(queue, self.in_flight, metrics.redeliveries, clock=lambda: 0.0)
        self.moves = Moves(queue, self.in_flight, metrics)
        self.reader = Reader(
            queue, self.reclaimer, self.moves.release_unprocessed, self.heartbeats,
            isolate_above=isolate_above, isolation=Isolation().of_source(self.in_flight), draw=lambda low, high: low + drawn * (high - low),
        )  # fmt: skip
        # Pauses end immediately.
        self.stop = Shutdown(1.0)
        self.stop.requested.set()

    async def read(self, count: int) -> Batch:
        return await self.reader.read(count, self.stop)

    async def read_all(self, many: int, count: int) -> list[Delivery]:
        """Read until `many` have come, over whatever losses."""
        taken: list[Delivery] = []
        for _ in range(50 * many):
            batch = await self.read(count)
            for entry in batch.deliveries:
                self.in_flight.add(entry, asyncio.create_task(asyncio.sleep(0)))
            taken += batch.deliveries
            if len(taken) >= many:
                return taken
        raise AssertionError(f"only {len(taken)} of {many} came")


@pytest.mark.parametrize("largest", [1, 3, 60])
async def test_on_a_network_that_loses_large_replies_all_come_in_smaller_ones_and_none_is_counted_again(
    largest: int,
) -> None:
    source = Source(undelivered=[delivery(number) for number in range(100)], largest=largest)
    process = Process(source)

    taken = await process.read_all(100, 100)

    assert sorted(entry.entry.id for entry in taken) == sorted(f"{number}-0" for number in range(100))
    assert {counted for _, _, counted in source.of("claim_own")[1:]} == {False}


async def test_when_replies_come_again_whole_slots_are_filled_at_once() -> None:
    source = Source(undelivered=[delivery(number) for number in range(1000)], largest=1)
    process = Process(source)
    await process.read_all(3, 100)

    source.largest = 10**6
    taken = [len((await process.read(100)).deliveries) for _ in range(12)]

    assert max(taken) == 100


async def test_what_fails_at_once_is_not_claimed_again_before_others_are_read() -> None:
    source = Unsettled(undelivered=[delivery(1)], largest=0)
    process = Process(source)
    await process.read(10)
    source.largest = 10**6
    source.undelivered = [delivery(2)]

    # It is no longer in flight when the next is read, because a bug has ended it.
    taken = [[entry.entry.id for entry in (await process.read(10)).deliveries] for _ in range(3)]

    assert taken == [["1-0"], ["2-0"], []]


async def test_what_was_claimed_and_not_handed_over_is_claimed_again() -> None:
    class Refusing(Unsettled):
        is_refusing = True

        async def release(self, deliveries: Sequence[Delivery]) -> int:
            if self.is_refusing:
                raise QueueUnavailable("the connection was lost before the call")
            return await super().release(deliveries)

    source = Refusing(own=[delivery(1), delivery(2, count=5)])
    process = Process(source)
    assert (await process.read(10)).deliveries == []
    source.is_refusing = False

    [taken] = (await process.read(2)).deliveries

    assert taken.entry.id == "1-0"


@pytest.mark.parametrize(
    ("consumers", "drawn", "blocks"), [(1, 1.0, True), (32, 1.0, True), (1000, 0.03, True), (1000, 0.9, False)]
)
@virtual_time
async def test_of_many_idle_processes_few_wait_in_a_blocking_read(
    consumers: int, drawn: float, *, blocks: bool
) -> None:
    source = Source(consumers=consumers)
    process = Process(source, drawn=drawn)
    await process.heartbeats.send()

    await process.read(5)

    assert source.of("read") == [("read", 5, BLOCK if blocks else 0.0)]


async def test_what_is_delivered_again_before_the_reply_to_its_release_has_come_is_held_and_processed() -> None:
    source = Releasing()
    process = Process(source)
    released = delivery(1)
    process.in_flight.add(released, asyncio.create_task(asyncio.sleep(0)))
    releasing = asyncio.create_task(process.moves.release([released]))
    await source.has_released.wait()

    batch = await process.read(1)
    for each in batch.deliveries:
        process.in_flight.add(each, asyncio.create_task(asyncio.sleep(0)))
    source.reply.set()
    await releasing

    assert [each.entry for each in batch.deliveries] == [released.entry]
    assert process.in_flight.holds(batch.deliveries[0])
    assert not process.in_flight.holds(released)
