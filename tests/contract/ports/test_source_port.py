"""The guarantees of `ingest.flow.ports.Reading`, of each implementation."""

import asyncio

import pytest
from contract.ports.groups import LIFETIME, NOW, GroupUnderTest

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.services.worker_parts import Queue

pytestmark = pytest.mark.each_server


def refs(deliveries: list[Delivery]) -> list[EntryRef]:
    return [delivery.entry for delivery in deliveries]


async def hold(consumer: Queue, group: GroupUnderTest, *order_ids: str) -> list[Delivery]:
    await group.add(*order_ids)
    deliveries = await consumer.read(len(order_ids), NOW)
    assert [delivery.order_id for delivery in deliveries] == list(order_ids)
    return deliveries


# -- read -------------------------------------------------------------------------------------------------------


async def test_entries_are_read_in_order_with_their_fields_and_as_their_first_delivery(
    group: GroupUnderTest, one: Queue
) -> None:
    entries = await group.add("a", "b", tenant="x", attempt="3", enqueued_at="1600000000500")

    deliveries = await one.read(10, NOW)

    assert refs(deliveries) == entries
    assert [(each.order_id, each.count, each.attempt, each.enqueued_at) for each in deliveries] == [
        ("a", 1, 3, 1_600_000_000.5),
        ("b", 1, 3, 1_600_000_000.5),
    ]
    assert deliveries[0].fields[b"tenant"] == b"x"


async def test_what_is_read_is_pending_under_its_consumer(group: GroupUnderTest, one: Queue) -> None:
    entries = await group.add("a", "b")

    await one.read(1, NOW)

    assert await group.pending() == {entries[0]: ("one", 1)}


async def test_no_more_is_read_than_asked_for(group: GroupUnderTest, one: Queue) -> None:
    await group.add(*"abcde")

    assert [len(await one.read(2, NOW)) for _ in range(4)] == [2, 2, 1, 0]


async def test_no_entry_is_read_by_two_consumers(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    entries = await group.add(*"abcd")

    parts = await asyncio.gather(*(consumer.read(1, NOW) for consumer in (one, two, one, two)))

    assert sorted(entry for part in parts for entry in refs(part)) == sorted(entries)


async def test_a_read_that_waits_returns_the_first_entry_that_comes(group: GroupUnderTest, one: Queue) -> None:
    reading = asyncio.create_task(one.read(10, 5.0))
    await asyncio.sleep(0)
    entries = await group.add("a")

    async with asyncio.timeout(4):  # rather than at the end of its wait
        assert refs(await reading) == entries


async def test_an_entry_without_a_valid_order_id_is_delivered_all_the_same(group: GroupUnderTest, one: Queue) -> None:
    await group.add("no\norder ID")

    assert [delivery.order_id for delivery in await one.read(1, NOW)] == [None]


# -- claim_own --------------------------------------------------------------------------------------------------


async def test_what_was_in_a_lost_reply_is_found_again_and_is_not_another_delivery(
    group: GroupUnderTest, one: Queue
) -> None:
    lost = await hold(one, group, "a", "b")

    assert await one.read(10, NOW) == [], "it is not new any more"
    again = await one.claim_own(10, [], counted=False)

    assert [(each.entry, each.order_id, each.count) for each in again] == [
        (each.entry, each.order_id, 1) for each in lost
    ]


async def test_what_a_predecessor_of_the_same_name_left_is_another_delivery(group: GroupUnderTest, one: Queue) -> None:
    left = await hold(one, group, "a")
    successor = await group.consumer("one")

    again = await successor.claim_own(10, [])

    assert [(each.entry, each.count) for each in again] == [(left[0].entry, 2)]
    assert await group.pending() == {left[0].entry: ("one", 2)}


async def test_what_is_known_is_not_claimed_and_others_behind_it_are(group: GroupUnderTest, one: Queue) -> None:
    held = await hold(one, group, *"abcd")

    again = await one.claim_own(1, refs(held[:3]), counted=False)

    assert refs(again) == refs(held[3:])
    assert await one.claim_own(1, refs(held)) == []


async def test_what_others_hold_is_not_ones_own(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    await hold(one, group, "a")

    assert await two.claim_own(10, []) == []


# -- claim_abandoned --------------------------------------------------------------------------------------------


async def test_what_was_released_anybody_may_claim_at_once_and_it_was_never_delivered(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    held = await hold(one, group, "a", "b")
    await one.release(held[:1])

    found = await two.claim_abandoned(10)

    assert [(each.entry, each.count) for each in found.released] == [(held[0].entry, 1)]
    assert found.dead == []
    assert await group.pending() == {held[0].entry: ("two", 1), held[1].entry: ("one", 1)}


async def test_what_is_released_is_claimed_once(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    held = await hold(one, group, *"abcdef")
    await one.release(held)

    found = await asyncio.gather(*(consumer.claim_abandoned(4) for consumer in (one, two)))

    assert max(len(each.released) for each in found) == 4
    assert sorted(entry for each in found for entry in refs(each.released)) == sorted(refs(held))


async def test_what_a_dead_consumer_held_is_claimed_and_counted(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    held = await hold(one, group, "a", "b")
    await group.entitle(one, two)
    assert (await two.claim_abandoned(10)).dead == [], "it is alive"

    await group.end_heartbeat("one")
    found = await two.claim_abandoned(10)

    assert [(each.entry, each.count) for each in found.dead] == [(each.entry, 2) for each in held]
    assert await group.pending() == {each.entry: ("two", 2) for each in held}


async def test_a_dead_consumer_is_removed_when_it_holds_nothing_any_more(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    await hold(one, group, "a", "b")
    await group.add("c")
    await two.read(1, NOW)
    await group.entitle(one, two)
    await group.end_heartbeat("one")

    members = []
    for _ in range(3):
        await two.claim_abandoned(1)
        members.append(await group.members())

    assert members[0] == {"one", "two"}
    assert members[2] == {"two"}


async def test_who_has_not_been_heard_for_a_lifetime_itself_takes_nobody_for_dead(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    await hold(one, group, "a")
    await one.heartbeat(LIFETIME)
    await group.end_heartbeat("one")

    never = await two.claim_abandoned(10)
    await two.heartbeat(LIFETIME)
    new = await two.claim_abandoned(10)
    await group.entitle(two)
    old = await two.claim_abandoned(10)

    assert (never.dead, new.dead, len(old.dead)) == ([], [], 1)


async def test_an_entry_that_was_deleted_after_its_consumer_died_is_not_claimed(
    group: GroupUnderTest, one: Queue, two: Queue
) -> None:
    held = await hold(one, group, "a", "b")
    await group.entitle(one, two)
    await group.end_heartbeat("one")
    await group.delete(held[0].entry)

    claimed = [*(await two.claim_abandoned(10)).dead, *(await two.claim_abandoned(10)).dead]

    assert refs(claimed) == refs(held[1:])
    assert set(await group.pending()) == {held[1].entry}
