"""When what is stored is acked, on fakes: a moment later and together, at once where something waits for it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest
from fakes.group import MemoryGroup
from fakes.queue import MemoryQueue
from fakes.store import MemoryStore
from fakes.upstream import document
from fakes.virtual_time import now, some_turns, until, virtual_time
from fakes.workers import Workplace, metrics

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.outcome import Store
from ingest.domain.orders.order import decode_order
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.clock import SharedClock
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held
from ingest.flow.settle.settlement import Settlement

AT = datetime(2026, 1, 1, tzinfo=UTC)
# What an ack may wait, and a little more.
SOON = 0.026


class Process:
    """The settlement of one process, which holds what a test has delivered to it."""

    def __init__(self, rows: int, *, keeps_results: bool) -> None:
        self.group = MemoryGroup(now)
        self.queue = MemoryQueue(self.group, "one", keeps_results=keeps_results)
        self.store = MemoryStore()
        self.in_flight = Held(clock=now)
        self.heartbeats = Heartbeats(self.queue, self.in_flight, 30.0, 6.0, SharedClock(monotonic=now), clock=now)
        self.buffer = BufferLimit(rows, 10**9)
        self.settlement = Settlement(
            self.queue, self.store, self.in_flight, self.heartbeats, metrics(), self.buffer, now=now, clock=now
        )

    async def deliver(self, count: int) -> list[Delivery]:
        self.group.add(*(f"order-{number}" for number in range(count)))
        deliveries = await self.queue.read(count, 0)
        for delivery in deliveries:
            self.in_flight.add(delivery, asyncio.create_task(asyncio.sleep(0)))
        return deliveries

    async def settle(self, delivery: Delivery) -> None:
        """Settle it with its order, as soon as there is buffer space."""
        await self.buffer.acquire(1)
        name = str(delivery.order_id)
        self.in_flight.mark_decided(delivery)
        self.settlement.store(delivery, Store((decode_order(document(name), name),), AT, 1))

    async def store_some(self, count: int) -> None:
        """Deliver orders, and store them together."""
        for delivery in await self.deliver(count):
            await self.settle(delivery)
        await some_turns()

    @property
    def acks(self) -> int:
        return self.group.calls["ack"]


@asynccontextmanager
async def settling(rows: int = 500, *, keeps_results: bool = False) -> AsyncIterator[Process]:
    process = Process(rows, keeps_results=keeps_results)
    async with asyncio.timeout(3_600):
        await process.heartbeats.send()
        running = asyncio.create_task(process.settlement.run())
        yield process
        running.cancel()
        await asyncio.wait([running])


# -- together ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_orders_stored_within_a_moment_of_each_other_are_acked_together() -> None:
    async with settling() as process:
        for delivery in await process.deliver(10):
            await process.settle(delivery)
            await asyncio.sleep(0.002)

        assert (len(process.store.statements), process.acks) == (10, 0)
        assert len(process.in_flight) == 10, "until then their leases are renewed"
        await until(process.group.is_empty, within=SOON)

        assert process.acks == 1
        assert len(process.in_flight) == 0
        assert process.buffer._rows_taken == 0


@virtual_time
async def test_their_results_are_told_together() -> None:
    async with settling(keeps_results=True) as process:
        await process.store_some(2)
        await process.store_some(2)
        await until(process.group.is_empty, within=SOON)

        assert process.group.calls["ack_with_results"] == 1
        assert sorted(process.group.results) == [
            ("order-0", "inserted"), ("order-0", "unchanged"), ("order-1", "inserted"), ("order-1", "unchanged")
        ]  # fmt: skip


@virtual_time
async def test_what_is_stored_after_an_ack_waits_for_the_next_one() -> None:
    async with settling() as process:
        for acks in range(1, 4):
            before = now()
            await process.store_some(3)
            await until(process.group.is_empty)

            assert (process.acks, now() - before < SOON) == (acks, True)


@virtual_time
async def test_what_others_have_claimed_while_it_waited_is_not_acked() -> None:
    async with settling() as process:
        kept, lost = await process.deliver(2)
        for delivery in (kept, lost):
            await process.settle(delivery)
        await some_turns()
        process.group.pending[lost.entry].owner = "two"
        process.in_flight.lose([lost.entry])
        await until(lambda: len(process.in_flight) == 0)

        assert set(process.group.pending) == {lost.entry}
        assert process.buffer._rows_taken == 0


# -- at once ----------------------------------------------------------------------------------------------------


@virtual_time
async def test_with_a_backlog_no_ack_waits() -> None:
    async with settling() as process:
        before = now()
        await process.store_some(3)
        assert not process.group.is_empty()
        process.settlement.expect_more(backlog=True)
        await some_turns()
        assert process.group.is_empty()
        assert now() == before


@virtual_time
async def test_many_entries_are_worth_a_call_at_once() -> None:
    async with settling() as process:
        before = now()
        await process.store_some(200)

        assert process.group.is_empty()
        assert now() == before


@virtual_time
async def test_who_waits_for_buffer_space_does_not_wait_for_more_acks_to_come() -> None:
    async with settling(rows=2) as process:
        before = now()
        async with asyncio.TaskGroup() as settled:
            for delivery in await process.deliver(7):
                settled.create_task(process.settle(delivery))

        assert now() == before


@virtual_time
async def test_an_ack_that_waits_is_sent_when_somebody_begins_to_wait_for_buffer_space() -> None:
    async with settling(rows=2) as process:
        before = now()
        await process.store_some(2)
        assert process.acks == 0
        await process.store_some(1)

        assert process.acks == 1
        assert now() == before


@virtual_time
async def test_a_stop_waits_for_no_more_acks_to_come() -> None:
    async with settling() as process:
        before = now()
        await process.store_some(3)
        process.settlement.finish()
        await some_turns()

        assert process.group.is_empty()
        assert now() == before


# -- while Redis is unavailable ---------------------------------------------------------------------------------


@virtual_time
async def test_while_redis_is_unavailable_orders_are_stored_until_the_buffer_is_full_and_acked_when_it_is_back() -> (
    None
):
    async with settling(rows=5) as process:
        deliveries = await process.deliver(9)
        process.group.set_available(is_available=False)
        async with asyncio.TaskGroup() as settled:
            for delivery in deliveries:
                settled.create_task(process.settle(delivery))
            await asyncio.sleep(60)

            assert (len(process.store.rows), len(process.in_flight)) == (5, 9)
            process.group.set_available(is_available=True)

        await until(process.group.is_empty)
        assert len(process.store.rows) == 9


@virtual_time
async def test_an_ack_whose_reply_was_lost_is_sent_again_and_what_came_meanwhile_goes_with_the_next() -> None:
    async with settling() as process:
        process.group.lost_replies["ack"] = 2
        await process.store_some(2)
        await asyncio.sleep(SOON)
        await process.store_some(2)
        await until(process.group.is_empty)

        assert len(process.in_flight) == 0
        assert process.acks == 4


@pytest.mark.parametrize("keeps_results", [False, True])
@virtual_time
async def test_an_ack_that_is_sent_again_after_a_failover_finishes_no_other_entry_with_the_same_id(
    *, keeps_results: bool
) -> None:
    async with settling(keeps_results=keeps_results) as process:
        call = "ack_with_results" if keeps_results else "ack"
        process.group.refused[call] = 1_000
        before = process.group.add_entry({b"order_id": b"before"}, "5-1")
        [stored] = await process.queue.read(1, 0)
        process.in_flight.add(stored, asyncio.create_task(asyncio.sleep(0)))
        await process.settle(stored)
        await until(lambda: process.group.calls[call] > 0)
        process.group.lose(before)
        after = process.group.add_entry({b"order_id": b"after"}, "5-1")
        [processed] = await process.queue.read(1, 0)
        process.in_flight.add(processed, asyncio.create_task(asyncio.sleep(60)))
        process.group.refused[call] = 0

        await until(lambda: process.buffer._rows_taken == 0)

        assert process.group.holds("one") == [after]
        assert process.in_flight.holds(processed)
        assert process.group.results == []


@virtual_time
async def test_a_worker_without_a_backlog_needs_fewer_acks_than_orders() -> None:
    place = Workplace()

    async with place.worker():
        for number in range(400):
            place.group.add(f"order-{number}")
            await asyncio.sleep(0.0025)
        await place.finished()

    assert len(place.store.rows) == 400
    assert place.group.calls["ack"] <= 60
