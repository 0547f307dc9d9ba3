"""Stored orders are acked together after a moment, or immediately if a caller waits for it, on fakes."""

import asyncio

import pytest
from fakes.virtual_time import now, some_turns, until, virtual_time
from fakes.workers import Workplace
from unit.settling import order_names, settling

# The longest wait of an ack, and a little more.
SOON = 0.026


# -- together ---------------------------------------------------------------------------------------------------


@virtual_time
async def test_orders_stored_within_a_moment_of_each_other_are_acked_together() -> None:
    async with settling() as process:
        for delivery in await process.deliver(*order_names(10)):
            await process.store_own(delivery)
            await asyncio.sleep(0.002)

        assert (len(process.store.statements), process.acks) == (10, 0)
        assert len(process.in_flight) == 10, "until then their leases are renewed"
        await until(process.group.is_empty, within=SOON)

        assert process.acks == 1
        assert len(process.in_flight) == 0
        assert process.buffer._rows.taken == 0


@virtual_time
async def test_their_results_are_told_together() -> None:
    async with settling(keeps_results=True) as process:
        await process.store_each(*order_names(2))
        await some_turns()
        await process.store_each(*order_names(2))
        await some_turns()
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
            await process.store_each(*order_names(3))
            await some_turns()
            await until(process.group.is_empty)

            assert (process.acks, now() - before < SOON) == (acks, True)


@virtual_time
async def test_what_others_have_claimed_while_it_waited_is_not_acked() -> None:
    async with settling() as process:
        kept, lost = await process.deliver(*order_names(2))
        for delivery in (kept, lost):
            await process.store_own(delivery)
        await some_turns()
        process.group.pending[lost.entry].owner = "two"
        process.in_flight.lose([lost.entry])
        await until(lambda: len(process.in_flight) == 0)

        assert set(process.group.pending) == {lost.entry}
        assert process.buffer._rows.taken == 0


# -- immediately --------------------------------------------------------------------------------------------------


@virtual_time
async def test_with_a_backlog_no_ack_waits() -> None:
    async with settling() as process:
        before = now()
        await process.store_each(*order_names(3))
        await some_turns()
        assert not process.group.is_empty()
        process.settlement.expect_more(backlog=True)
        await some_turns()
        assert process.group.is_empty()
        assert now() == before


@virtual_time
async def test_many_entries_are_worth_a_call_at_once() -> None:
    async with settling(rows=500) as process:
        before = now()
        await process.store_each(*order_names(200))
        await some_turns()

        assert process.group.is_empty()
        assert now() == before


@virtual_time
async def test_who_waits_for_buffer_space_does_not_wait_for_more_acks_to_come() -> None:
    async with settling(rows=2) as process:
        before = now()
        async with asyncio.TaskGroup() as settled:
            for delivery in await process.deliver(*order_names(7)):
                settled.create_task(process.store_own(delivery))

        assert now() == before


@virtual_time
async def test_an_ack_that_waits_is_sent_when_somebody_begins_to_wait_for_buffer_space() -> None:
    async with settling(rows=2) as process:
        before = now()
        await process.store_each(*order_names(2))
        await some_turns()
        assert process.acks == 0
        await process.store_each(*order_names(1))
        await some_turns()

        assert process.acks == 1
        assert now() == before


@virtual_time
async def test_a_stop_waits_for_no_more_acks_to_come() -> None:
    async with settling() as process:
        before = now()
        await process.store_each(*order_names(3))
        await some_turns()
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
        deliveries = await process.deliver(*order_names(9))
        process.group.set_available(is_available=False)
        async with asyncio.TaskGroup() as settled:
            for delivery in deliveries:
                settled.create_task(process.store_own(delivery))
            await asyncio.sleep(60)

            assert (len(process.store.rows), len(process.in_flight)) == (5, 9)
            process.group.set_available(is_available=True)

        await until(process.group.is_empty)
        assert len(process.store.rows) == 9


@virtual_time
async def test_an_ack_whose_reply_was_lost_is_sent_again_and_what_came_meanwhile_goes_with_the_next() -> None:
    async with settling() as process:
        process.group.lost_replies["ack"] = 2
        await process.store_each(*order_names(2))
        await some_turns()
        await asyncio.sleep(SOON)
        await process.store_each(*order_names(2))
        await some_turns()
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
        await process.store_own(stored)
        await until(lambda: process.group.calls[call] > 0)
        process.group.lose(before)
        after = process.group.add_entry({b"order_id": b"after"}, "5-1")
        [processed] = await process.queue.read(1, 0)
        process.in_flight.add(processed, asyncio.create_task(asyncio.sleep(60)))
        process.group.refused[call] = 0

        await until(lambda: process.buffer._rows.taken == 0)

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
