"""The promises about erased orders for each implementation: no retry, no dead letter, and no remains."""

import pytest
from contract.ports.groups import NOW, GroupUnderTest
from contract.ports.test_settling_port import hold

from ingest.domain.deliveries.delivery import DeadReason
from ingest.services.worker_parts import Queue

EXPLAINED = DeadReason.REJECTED, "HTTP 422"


async def test_an_erased_order_in_flight_becomes_no_retry(group: GroupUnderTest, one: Queue) -> None:
    [delivery] = await hold(one, group, "a")
    await group.erase("a")

    assert await one.reschedule(delivery, 0.0, 2) is False

    assert (await group.waiting(), await group.pending(), await group.exists(delivery.entry)) == (0, {}, False)


async def test_an_erased_order_in_flight_becomes_no_dead_letter(group: GroupUnderTest, one: Queue) -> None:
    [delivery] = await hold(one, group, "a")
    await group.erase("a")

    assert await one.dead_letter(delivery, *EXPLAINED) is False

    assert (await group.dead(), await group.pending(), await group.exists(delivery.entry)) == ([], {}, False)


async def test_other_orders_are_moved_as_ever(group: GroupUnderTest, one: Queue) -> None:
    first, second = await hold(one, group, "a", "b")
    await group.erase("erased")

    assert await one.reschedule(first, 3_600.0, 2)
    assert await one.dead_letter(second, *EXPLAINED)

    assert (await group.waiting(), await group.dead()) == (1, [("b", "rejected")])


async def test_a_move_of_an_erased_order_whose_reply_was_lost_may_be_sent_again(
    group: GroupUnderTest, one: Queue
) -> None:
    first, second = await hold(one, group, "a", "b")
    await group.erase("a")
    await group.erase("b")

    assert [await one.reschedule(first, 0.0, 2) for _ in range(2)] == [False, False]
    assert [await one.dead_letter(second, *EXPLAINED) for _ in range(2)] == [False, False]

    assert (await group.waiting(), await group.dead(), await group.pending()) == (0, [], {})


async def test_an_erased_order_whose_entry_is_lost_does_not_wait(group: GroupUnderTest, one: Queue) -> None:
    [delivery] = await hold(one, group, "a")
    await group.erase("a")
    await group.lose(delivery.entry)

    assert await one.reschedule(delivery, 0.0, 2) is False
    assert await one.dead_letter(delivery, *EXPLAINED) is False

    assert (await group.waiting(), await group.dead()) == (0, [])


async def test_what_another_has_claimed_is_not_finished(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    [delivery] = await hold(one, group, "a")
    await group.entitle(one, two)
    await group.end_heartbeat("one")
    await two.claim_abandoned(1)
    await group.erase("a")

    await one.reschedule(delivery, 0.0, 2)
    await one.dead_letter(delivery, *EXPLAINED)

    assert await group.pending() == {delivery.entry: ("two", 2)}


async def test_a_retry_of_an_erased_order_is_deleted_when_it_is_due(group: GroupUnderTest, one: Queue) -> None:
    erased, kept = await hold(one, group, "a", "b")
    await one.reschedule(erased, 0.0, 2)
    await one.reschedule(kept, 0.0, 2)
    await group.erase("a")

    assert await one.move_due(10) == 2

    assert await group.waiting() == 0
    assert [delivery.order_id for delivery in await one.read(10, NOW)] == ["b"]


@pytest.mark.parametrize("shared", [False, True], ids=["one group", "two groups"])
async def test_of_an_erased_order_a_result_says_only_that(group: GroupUnderTest, *, shared: bool) -> None:
    if shared:
        await group.add_group()
    telling = await group.consumer("telling", results_age=3_600.0)
    [delivery] = await hold(telling, group, "a")
    await group.erase("a")

    await telling.dead_letter(delivery, *EXPLAINED)

    assert await group.results() == [("a", "erased")]
    assert (await group.dead(), await group.pending()) == ([], {})
