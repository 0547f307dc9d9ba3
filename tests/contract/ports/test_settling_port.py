"""The guarantees of `ingest.flow.ports.Settling`, of each implementation."""

from collections.abc import Awaitable, Callable

import pytest
from contract.ports.groups import NOW, GroupUnderTest

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.services.worker_parts import Queue

pytestmark = pytest.mark.each_server

MOVES: dict[str, Callable[[Queue, Delivery], Awaitable[object]]] = {
    "reschedule": lambda consumer, delivery: consumer.reschedule(delivery, 0.0, 2),
    "dead_letter": lambda consumer, delivery: consumer.dead_letter(delivery, DeadReason.REJECTED, "HTTP 422"),
    "release": lambda consumer, delivery: consumer.release([delivery]),
}
each_move = pytest.mark.parametrize("move", MOVES)


async def hold(consumer: Queue, group: GroupUnderTest, *order_ids: str) -> list[Delivery]:
    await group.add(*order_ids)
    deliveries = await consumer.read(len(order_ids), NOW)
    assert len(deliveries) == len(order_ids)
    return deliveries


async def stolen(group: GroupUnderTest, one: Queue, two: Queue) -> Delivery:
    """A delivery of `one` whose entry `two` has claimed."""
    [delivery] = await hold(one, group, "stolen")
    await group.entitle(one, two)
    await group.end_heartbeat("one")
    assert len((await two.claim_abandoned(1)).dead) == 1
    return delivery


# -- ack --------------------------------------------------------------------------------------------------------


async def test_what_is_acked_is_finished_and_gone(group: GroupUnderTest, one: Queue) -> None:
    held = await hold(one, group, "a", "b", "c")

    assert await one.ack([delivery.entry for delivery in held[:2]]) == 2

    assert set(await group.pending()) == {held[2].entry}
    assert [await group.exists(delivery.entry) for delivery in held] == [False, False, True]


async def test_an_ack_whose_reply_was_lost_may_be_sent_again(group: GroupUnderTest, one: Queue) -> None:
    held = await hold(one, group, "a")

    assert [await one.ack([held[0].entry]) for _ in range(2)] == [1, 0]


async def test_an_ack_of_what_another_has_claimed_does_nothing(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    delivery = await stolen(group, one, two)

    assert await one.ack([delivery.entry]) == 0

    assert await group.pending() == {delivery.entry: ("two", 2)}
    assert await group.exists(delivery.entry)


async def test_an_ack_of_what_was_released_does_nothing(group: GroupUnderTest, one: Queue) -> None:
    held = await hold(one, group, "a")
    await one.release(held)

    assert await one.ack([held[0].entry]) == 0

    assert await group.pending() == {held[0].entry: (None, 0)}


async def test_no_entries_are_acked_or_released_by_empty_calls(one: Queue) -> None:
    assert (await one.ack([]), await one.release([])) == (0, 0)


# -- moves ------------------------------------------------------------------------------------------------------


async def test_a_rescheduled_entry_leaves_the_stream_and_comes_back_with_its_attempt(
    group: GroupUnderTest, one: Queue
) -> None:
    await group.add("a", tenant="x")
    [delivery] = await one.read(1, NOW)

    assert await one.reschedule(delivery, 0.0, 4)

    assert (await group.pending(), await group.waiting(), await group.exists(delivery.entry)) == ({}, 1, False)
    assert await one.move_due(10) == 1
    [again] = await one.read(1, NOW)
    assert (again.order_id, again.attempt, again.count, again.fields[b"tenant"]) == ("a", 4, 1, b"x")
    assert again.enqueued_at == pytest.approx(delivery.enqueued_at, abs=0.001)


async def test_a_dead_lettered_entry_leaves_the_stream(group: GroupUnderTest, one: Queue) -> None:
    [delivery] = await hold(one, group, "a")

    assert await one.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")

    assert (await group.pending(), await group.waiting(), await group.exists(delivery.entry)) == ({}, 0, False)
    assert await group.dead() == [("a", "not_found")]


async def test_a_released_entry_is_nobodys_and_this_delivery_does_not_count(group: GroupUnderTest, one: Queue) -> None:
    held = await hold(one, group, "a", "b")
    [twice] = await one.claim_own(1, [held[1].entry])

    assert await one.release([twice, held[1]]) == 2

    assert await group.pending() == {held[0].entry: (None, 1), held[1].entry: (None, 0)}


async def test_a_release_that_is_sent_twice_takes_one_delivery_off_the_count(group: GroupUnderTest, one: Queue) -> None:
    held = await hold(one, group, "a")
    for _ in range(2):
        held = await one.claim_own(1, [])

    for _ in range(2):
        await one.release(held)

    assert await group.pending() == {held[0].entry: (None, 2)}


@each_move
async def test_a_move_whose_reply_was_lost_may_be_sent_again(group: GroupUnderTest, one: Queue, move: str) -> None:
    [delivery] = await hold(one, group, "a")
    await MOVES[move](one, delivery)
    after = await group.pending(), await group.waiting(), await group.dead()

    await MOVES[move](one, delivery)

    assert (await group.pending(), await group.waiting(), await group.dead()) == after


async def test_a_move_that_was_made_says_so_once(group: GroupUnderTest, one: Queue) -> None:
    first, second = await hold(one, group, "a", "b")

    assert [await one.reschedule(first, 0.0, 2) for _ in range(2)] == [True, False]
    assert [await one.dead_letter(second, DeadReason.REJECTED, "no") for _ in range(2)] == [True, False]


@each_move
async def test_a_move_of_what_another_has_claimed_changes_nothing(
    group: GroupUnderTest, one: Queue, two: Queue, move: str
) -> None:
    delivery = await stolen(group, one, two)

    assert not await MOVES[move](one, delivery)

    assert await group.pending() == {delivery.entry: ("two", 2)}
    assert (await group.waiting(), await group.dead()) == (0, [])


@pytest.mark.parametrize("move", ["reschedule", "dead_letter"])
async def test_what_was_released_is_not_moved_any_more(group: GroupUnderTest, one: Queue, move: str) -> None:
    [delivery] = await hold(one, group, "a")
    await one.release([delivery])

    assert not await MOVES[move](one, delivery)

    assert await group.pending() == {delivery.entry: (None, 0)}
    assert (await group.waiting(), await group.dead()) == (0, [])


@each_move
async def test_the_order_of_an_entry_that_was_lost_with_its_pending_record_waits_in_the_retry_set(
    group: GroupUnderTest, one: Queue, move: str
) -> None:
    [delivery] = await hold(one, group, "a")
    await group.lose(delivery.entry)

    await MOVES[move](one, delivery)
    await MOVES[move](one, delivery)

    assert (await group.waiting(), await group.dead()) == (1, [])


@pytest.mark.parametrize("reader", ["one", "two"])
@each_move
async def test_the_order_of_an_entry_whose_id_was_given_to_another_waits_and_the_other_is_untouched(
    group: GroupUnderTest, one: Queue, two: Queue, move: str, reader: str
) -> None:
    await group.add("lost", entry_id="5-1")
    [lost] = await one.read(1, NOW)
    other = await one_after_a_failover(group, {"one": one, "two": two}[reader])

    await MOVES[move](one, lost)

    assert await group.waiting() == 1
    assert await group.exists(other.entry)
    assert await group.pending() == {other.entry: (reader, 1)}


async def one_after_a_failover(group: GroupUnderTest, consumer: Queue) -> Delivery:
    """Another order's entry with the ID 5-1: the server's data and clock are behind."""
    await group.forget_stream()
    await group.add("other", entry_id="5-1")
    [other] = await consumer.read(1, NOW)
    assert other.order_id == "other"
    return other


async def test_of_several_entries_each_is_released_that_is_still_ours(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    claimed = await stolen(group, one, two)
    await one.heartbeat(60.0)
    kept, lost = await hold(one, group, "kept", "lost")
    await group.lose(lost.entry)

    assert await one.release([claimed, kept, lost]) == 1

    assert await group.pending() == {claimed.entry: ("two", 2), kept.entry: (None, 0)}
    assert await group.waiting() == 1


# -- several groups ---------------------------------------------------------------------------------------------


async def test_what_is_finished_stays_while_another_group_has_to_read_it(group: GroupUnderTest, one: Queue) -> None:
    await group.add_group()
    acked, dead, waiting = await hold(one, group, "a", "b", "c")

    await one.ack([acked.entry])
    await one.dead_letter(dead, DeadReason.REJECTED, "no")
    await one.reschedule(waiting, 3_600.0, 2)

    assert await group.pending() == {}
    assert all([await group.exists(delivery.entry) for delivery in (acked, dead, waiting)])
