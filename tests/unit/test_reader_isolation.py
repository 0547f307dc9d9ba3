"""The reader on a group in memory: the order of its reads, and the kept entries if some may be poison messages."""

import asyncio

import pytest
from fakes.group import MemoryGroup, Pending
from fakes.queue import MemoryQueue
from fakes.virtual_time import now, virtual_time
from fakes.workers import metrics

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.clock import SharedClock
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held
from ingest.flow.isolation import Isolation
from ingest.flow.read.reader import BLOCK, Batch, Reader
from ingest.flow.read.reclaim import Reclaimer
from ingest.flow.settle.moves import Moves
from ingest.flow.shutdown import Shutdown

LIFETIME = 6.0


class Process:
    """The entries that one process reads and holds."""

    def __init__(self, name: str = "one", group: MemoryGroup | None = None, isolate_above: int = 3) -> None:
        self.group = group or MemoryGroup(now)
        self.queue = MemoryQueue(self.group, name)
        counted = metrics()
        self.in_flight, self.isolation = Held(clock=now), Isolation()
        self.heartbeats = Heartbeats(self.queue, self.in_flight, 30.0, LIFETIME, SharedClock(monotonic=now), clock=now)
        self.reader = Reader(
            self.queue,
            Reclaimer(self.queue, self.in_flight, counted.redeliveries, clock=now),
            Moves(self.queue, self.in_flight, counted).release_unprocessed,
            self.heartbeats,
            isolate_above=isolate_above,
            isolation=self.isolation.of_source(self.in_flight),
        )
        self.shutdown = Shutdown(1.0)

    async def read(self, count: int = 10) -> Batch:
        batch = await self.reader.read(count, self.shutdown)
        for delivery in batch.deliveries:
            self.in_flight.add(delivery, asyncio.create_task(asyncio.sleep(0)))
        return batch

    async def read_probe(self, ahead: int = 0) -> list[Delivery]:
        deliveries = await self.reader.read_probe(self.shutdown, ahead)
        for delivery in deliveries:
            self.in_flight.add(delivery, asyncio.create_task(asyncio.sleep(0)))
        return deliveries

    def leave_pending(self, order_id: str, owner: str | None, count: int) -> EntryRef:
        """An entry with this number of deliveries, held by a consumer or released."""
        [entry] = self.group.add(order_id)
        self.group.undelivered.remove(entry)
        self.group.pending[entry] = Pending(owner, count, now())
        return entry


def orders(deliveries: list[Delivery]) -> list[str | None]:
    return [delivery.order_id for delivery in deliveries]


# -- the order of sources ---------------------------------------------------------------------------------------


@virtual_time
async def test_first_comes_what_this_consumer_left_then_what_others_did_then_what_is_new() -> None:
    process = Process()
    process.leave_pending("own", "one", 1)
    process.leave_pending("released", None, 0)
    process.group.add("new")

    batches = [await process.read() for _ in range(3)]

    assert [orders(batch.deliveries) for batch in batches] == [["own"], ["released"], ["new"]]
    assert [delivery.count for batch in batches for delivery in batch.deliveries] == [2, 1, 1]


@virtual_time
async def test_what_dead_consumers_hold_is_looked_for_every_second_or_two_and_not_at_each_read() -> None:
    process = Process()
    for _ in range(30):
        await process.read()

    assert 12 <= process.group.calls["claim_abandoned"] <= 25
    assert process.group.calls["claim_own"] == 1


@virtual_time
async def test_no_more_is_read_than_there_are_slots_whatever_the_source() -> None:
    process = Process()
    for number in range(5):
        process.leave_pending(f"own-{number}", "one", 1)
        process.leave_pending(f"released-{number}", None, 0)
    process.group.add(*(f"new-{number}" for number in range(5)))

    batches = [await process.read(2) for _ in range(9)]

    assert max(len(batch.deliveries) for batch in batches) == 2
    assert len(process.in_flight) == 15
    assert [batch.is_full for batch in batches].count(True) >= 6


@virtual_time
async def test_an_idle_read_ends_after_its_longest_wait_or_with_the_first_entry() -> None:
    process = Process()
    before = now()
    empty = await process.read()
    waited = now() - before
    asyncio.get_running_loop().call_later(0.3, process.group.add, "new")
    found = await process.read()

    assert (empty.deliveries, orders(found.deliveries)) == ([], ["new"])
    assert waited == pytest.approx(BLOCK)
    assert now() - before == pytest.approx(BLOCK + 0.3)


@virtual_time
async def test_what_this_process_holds_is_not_read_again_although_it_was_released_for_it() -> None:
    process = Process()
    process.group.add("held")
    [delivery] = (await process.read()).deliveries
    process.group.pending[delivery.entry].owner = None  # a sweep: the loop was blocked for longer than a lease
    await asyncio.sleep(2 * BLOCK)

    assert (await process.read()).deliveries == []
    assert process.group.holds("one") == [delivery.entry], "and it is ours again"


# -- while Redis is unavailable ---------------------------------------------------------------------------------


@virtual_time
async def test_while_redis_is_unavailable_reads_bring_nothing_after_a_pause() -> None:
    process = Process()
    process.group.set_available(is_available=False)
    before = now()
    batches = [await process.read() for _ in range(10)]
    process.group.add("new")
    process.group.set_available(is_available=True)

    assert not any(batch.deliveries for batch in batches)
    assert now() - before == pytest.approx(10 * BLOCK / 2)
    assert orders((await process.read()).deliveries) == ["new"]


@virtual_time
async def test_a_request_to_stop_ends_the_pause() -> None:
    process = Process()
    process.group.set_available(is_available=False)
    process.shutdown.request("test")
    before = now()

    await process.read()

    assert now() == before


# -- possible poison --------------------------------------------------------------------------------------------


@virtual_time
async def test_among_others_it_is_released_uncounted_and_comes_alone_later() -> None:
    process = Process(isolate_above=3)
    process.leave_pending("harmless", "one", 1)
    often = process.leave_pending("often", "one", 3)

    first = await process.read()
    after = process.group.pending[often].owner, process.group.pending[often].count
    second = await process.read()

    assert (orders(first.deliveries), first.is_isolated) == (["harmless"], False)
    assert after == (None, 3)
    assert (orders(second.deliveries), second.is_isolated) == (["often"], True)


@virtual_time
async def test_of_several_one_is_kept_and_the_others_are_released() -> None:
    process = Process(isolate_above=3)
    entries = [process.leave_pending(f"often-{number}", "one", 5) for number in range(4)]

    batch = await process.read()

    assert (len(batch.deliveries), batch.is_isolated) == (1, True)
    assert process.group.holds("one") == [batch.deliveries[0].entry]
    released = [process.group.pending[entry] for entry in entries if entry != batch.deliveries[0].entry]
    assert {(pending.owner, pending.count) for pending in released} == {(None, 5)}


@virtual_time
async def test_if_releasing_the_others_fails_none_is_kept_and_all_come_again() -> None:
    process = Process(isolate_above=3)
    process.leave_pending("harmless", "one", 1)
    process.leave_pending("often", "one", 3)
    process.group.refused["release"] = 1

    failed = await process.read()
    batches = [await process.read() for _ in range(4)]

    assert failed.deliveries == []
    read = [(order_id, batch.is_isolated) for batch in batches for order_id in orders(batch.deliveries)]
    assert sorted(read) == [("harmless", False), ("often", True)]


# -- probes -----------------------------------------------------------------------------------------------------


@virtual_time
async def test_a_probe_is_a_new_entry_rather_than_one_that_was_released_or_left_by_a_predecessor() -> None:
    process = Process()
    process.leave_pending("own", "one", 1)
    process.leave_pending("released", None, 0)
    process.group.add("new")

    probes = [await process.read_probe() for _ in range(4)]

    assert [orders(probe) for probe in probes] == [["new"], ["released"], ["own"], []]


@virtual_time
async def test_a_probe_passes_over_new_entries_and_releases_them() -> None:
    process = Process()
    process.group.add(*(f"order-{number}" for number in range(6)))

    probes = [await process.read_probe(ahead) for ahead in (2, 10, 0)]

    assert [orders(probe) for probe in probes] == [["order-2"], ["order-5"], ["order-0"]]
    assert {pending.owner for pending in process.group.pending.values()} == {"one", None}
    assert {pending.count for pending in process.group.pending.values()} == {0, 1}


@virtual_time
async def test_after_the_lost_reply_of_a_probe_its_entry_is_looked_for() -> None:
    process = Process()
    await process.read()
    process.group.add("new")
    process.group.lost_replies["read"] = 1

    assert await process.read_probe() == []
    batch = await process.read()

    assert [(delivery.order_id, delivery.count) for delivery in batch.deliveries] == [("new", 1)]


@virtual_time
async def test_after_the_lost_reply_of_a_probe_the_next_one_looks_for_its_entry_if_there_is_no_other() -> None:
    process = Process()
    process.group.add("lost")
    process.group.lost_replies["read"] = 1
    before = await process.read_probe()
    process.group.add("new")

    probes = [await process.read_probe() for _ in range(3)]

    assert [orders(probe) for probe in (before, *probes)] == [[], ["new"], ["lost"], []]
    assert {pending.count for pending in process.group.pending.values()} == {1}, (
        "it was counted when the reply was lost"
    )


# -- several processes ------------------------------------------------------------------------------------------


@virtual_time
async def test_what_a_dead_process_held_is_divided_among_the_others() -> None:
    dead = Process("dead")
    dead.group.add(*(f"order-{number}" for number in range(30)))
    heirs = [Process(name, dead.group) for name in ("one", "two")]
    await dead.heartbeats.send()
    await dead.read(30)
    running = [asyncio.create_task(heir.heartbeats.run()) for heir in heirs]
    for heir in heirs:
        await heir.heartbeats.send()
    await asyncio.sleep(2 * LIFETIME)

    while dead.group.holds("dead"):
        await asyncio.gather(*(heir.read(10) for heir in heirs))

    assert sorted(len(heir.in_flight) for heir in heirs) == [10, 20]
    assert {pending.count for pending in dead.group.pending.values()} == {2}
    for task in running:
        task.cancel()
    await asyncio.wait(running)


@virtual_time
async def test_while_another_source_isolates_an_entry_only_new_ones_are_read() -> None:
    process = Process()
    other = process.isolation.of_source(Held(clock=now))
    process.leave_pending("own", "one", 1)
    process.leave_pending("released", None, 0)
    process.group.add("new")

    async with other.alone():
        during = orders((await process.read()).deliveries)
    afterwards = [orders((await process.read()).deliveries) for _ in range(2)]

    assert (during, afterwards) == (["new"], [["own"], ["released"]])
