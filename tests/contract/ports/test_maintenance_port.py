"""The guarantees of `ingest.flow.ports.Maintenance`, of each implementation."""

import asyncio
from collections.abc import Mapping
from datetime import datetime

import pytest
from contract.ports.groups import LEASE, LIFETIME, NOW, GroupUnderTest

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.services.worker_parts import Queue

pytestmark = pytest.mark.each_server


async def hold(consumer: Queue, group: GroupUnderTest, *order_ids: str) -> list[Delivery]:
    await group.add(*order_ids)
    return await consumer.read(len(order_ids), NOW)


# -- sweep ------------------------------------------------------------------------------------------------------


async def test_the_sweep_releases_what_nobody_has_renewed_and_its_delivery_stays_counted(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    old, fresh = await hold(one, group, "a", "b")
    await group.entitle(one, two)
    await group.age([old.entry], LEASE + 1)

    found = await two.sweep(LEASE)

    assert (found.is_complete, found.released, found.restored) == (True, 1, 0)
    assert await group.pending() == {old.entry: (None, 1), fresh.entry: ("one", 1)}
    assert [delivery.count for delivery in (await two.claim_abandoned(10)).released] == [2]


async def test_a_sweeper_whose_own_heartbeats_had_a_break_releases_nothing_that_is_held(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    [old] = await hold(one, group, "a")
    await group.age([old.entry], LEASE + 1)
    await two.heartbeat(LIFETIME)

    new = await two.sweep(LEASE)
    await group.entitle(two)

    assert (new.released, (await two.sweep(LEASE)).released) == (0, 1)


async def test_the_sweep_puts_back_what_has_left_the_pending_list_without_being_settled(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    lost, acked, dead, waiting = await hold(one, group, "a", "b", "c", "d")
    [held] = await hold(two, group, "e")
    await one.ack([acked.entry])
    await one.dead_letter(dead, DeadReason.REJECTED, "no")
    await one.reschedule(waiting, 3_600.0, 2)
    await group.add("undelivered")
    await group.drop_consumer("one")

    found = await two.sweep(LEASE)

    assert (found.released, found.restored) == (0, 1)
    assert await group.pending() == {lost.entry: (None, 0), held.entry: ("two", 1)}


# -- retries ----------------------------------------------------------------------------------------------------


async def test_what_is_due_comes_back_and_nothing_before_its_time(group: GroupUnderTest, one: Queue) -> None:
    now, later = await hold(one, group, "now", "later")
    await one.reschedule(now, 0.0, 2)
    await one.reschedule(later, 3_600.0, 2)

    assert [await one.move_due(10) for _ in range(2)] == [1, 0]

    assert [delivery.order_id for delivery in await one.read(10, NOW)] == ["now"]
    assert await group.waiting() == 1


async def test_no_more_comes_back_than_asked_for_and_each_once(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    for delivery in await hold(one, group, *"abcde"):
        await one.reschedule(delivery, 0.0, 2)

    moved = await asyncio.gather(*(consumer.move_due(2) for consumer in (one, two, one, two)))

    assert sorted(moved) == [0, 1, 2, 2]
    assert sorted(str(delivery.order_id) for delivery in await one.read(10, NOW)) == list("abcde")


# -- trim -------------------------------------------------------------------------------------------------------


async def test_trimming_deletes_what_every_group_has_finished_and_nothing_else(
    group: GroupUnderTest, one: Queue
) -> None:
    await group.add_group()
    finished, held = await hold(one, group, "a", "b")
    await one.ack([finished.entry])

    early = await one.trim(10)
    await group.finish_other_group()
    late = await one.trim(10), await one.trim(10)

    assert (early, late) == (0, (1, 0))
    assert (await group.exists(finished.entry), await group.exists(held.entry)) == (False, True)


async def test_trimming_never_deletes_what_has_left_the_pending_list_without_being_settled(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    await group.add_group()
    [lost] = await hold(one, group, "a")
    await group.drop_consumer("one")
    await group.finish_other_group()

    assert await two.trim(10) == 0

    assert await group.exists(lost.entry)


# -- removing ---------------------------------------------------------------------------------------------------


async def test_consumers_without_a_heartbeat_that_hold_nothing_are_removed_and_no_others(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    idle, holder = await group.consumer("idle"), await group.consumer("holder")
    for consumer in (one, two, idle):
        await consumer.ack([delivery.entry for delivery in await hold(consumer, group, "a")])
    [held] = await hold(holder, group, "b")
    await one.heartbeat(LIFETIME)

    assert await two.remove_stale(-1.0) == 1

    assert await group.members() == {"one", "two", "holder"}
    assert await group.pending() == {held.entry: ("holder", 1)}


# -- late orders ------------------------------------------------------------------------------------------------


async def test_the_dead_letter_of_an_order_that_was_stored_later_is_removed_and_no_other(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    late, rejected, gone = await hold(one, group, "late", "rejected", "gone")
    await one.dead_letter(late, DeadReason.NOT_FOUND, "HTTP 404")
    await one.dead_letter(rejected, DeadReason.REJECTED, "HTTP 400")
    await one.dead_letter(gone, DeadReason.NOT_FOUND, "HTTP 404")
    asked: list[set[str]] = []

    async def stored(times: Mapping[str, datetime]) -> set[str]:
        asked.append(set(times))
        return {"late", "rejected"}

    assert await two.settle_not_found(stored) == 1

    assert asked == [{"late", "gone"}]
    assert sorted(await group.dead()) == [("gone", "not_found"), ("rejected", "rejected")]


async def test_a_dead_letter_whose_order_is_not_found_again_in_the_meantime_stays(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    first, again = await hold(one, group, "a", "a")
    await one.dead_letter(first, DeadReason.NOT_FOUND, "HTTP 404")

    async def stored(times: Mapping[str, datetime]) -> set[str]:
        await one.dead_letter(again, DeadReason.NOT_FOUND, "HTTP 404")
        return {"a"} & times.keys()

    assert await two.settle_not_found(stored) == 0

    assert ("a", "not_found") in await group.dead()


async def test_repeated_calls_reach_the_oldest_dead_letter(group: GroupUnderTest, one: Queue) -> None:
    for delivery in await hold(one, group, "oldest", *(f"{number}" for number in range(350))):
        await one.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")

    async def stored(times: Mapping[str, datetime]) -> set[str]:
        return {"oldest"} & times.keys()

    assert sum([await one.settle_not_found(stored) for _ in range(5)]) == 1
    assert ("oldest", "not_found") not in await group.dead()
