"""The guarantees of `ingest.flow.ports.Liveness`, of each implementation."""

import pytest
from contract.ports.groups import LEASE, LIFETIME, NOW, GroupUnderTest
from support import eventually

from ingest.domain.deliveries.delivery import EntryRef
from ingest.domain.operating.source_state import ProcessReport, Reason, State
from ingest.services.worker_parts import Queue

pytestmark = pytest.mark.each_server


async def hold(consumer: Queue, group: GroupUnderTest, *order_ids: str) -> list[EntryRef]:
    await group.add(*order_ids)
    return [delivery.entry for delivery in await consumer.read(len(order_ids), NOW)]


# -- heartbeat --------------------------------------------------------------------------------------------------


async def test_a_heartbeat_tells_whether_there_was_a_break_before_it(group: GroupUnderTest, one: Queue) -> None:
    first = await one.heartbeat(LIFETIME)
    second = await one.heartbeat(LIFETIME)
    await group.end_heartbeat("one")
    third = await one.heartbeat(LIFETIME)

    assert [heartbeat.is_first for heartbeat in (first, second, third)] == [True, False, True]
    assert first.now <= second.now <= third.now


async def test_a_heartbeat_tells_how_many_consumers_have_one(one: Queue, two: Queue) -> None:
    assert [(await consumer.heartbeat(LIFETIME)).consumers for consumer in (one, two, one)] == [1, 2, 2]


async def test_one_consumer_leads_until_its_heartbeats_end(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    before = [(await consumer.heartbeat(LIFETIME)).leads for consumer in (one, two, one)]
    await group.end_leadership()
    after = [(await consumer.heartbeat(LIFETIME)).leads for consumer in (two, one)]

    assert (before, after) == ([True, False, True], [True, False])


# -- renew ------------------------------------------------------------------------------------------------------


async def test_what_is_renewed_is_not_released_by_a_sweep(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    renewed, forgotten = await hold(one, group, "a", "b")
    await group.entitle(one, two)
    await group.age([renewed, forgotten], LEASE + 1)

    assert await one.renew([renewed]) == set()

    assert (await two.sweep(LEASE)).released == 1
    assert await group.pending() == {renewed: ("one", 1), forgotten: (None, 1)}


async def test_a_renewal_tells_what_others_have_claimed(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    lost, kept = await hold(one, group, "a", "b")
    await group.entitle(one, two)
    await group.end_heartbeat("one")
    await two.claim_abandoned(1)

    assert await one.renew([lost, kept]) == {lost}

    assert await group.pending() == {lost: ("two", 2), kept: ("one", 1)}


async def test_a_renewal_neither_counts_nor_takes_back_what_was_released(group: GroupUnderTest, one: Queue) -> None:
    await group.add("a", "b")
    released, kept = await one.read(2, NOW)
    await one.release([released])

    assert await one.renew([released.entry, kept.entry]) == set()

    assert await group.pending() == {released.entry: (None, 0), kept.entry: ("one", 1)}


async def test_what_is_finished_or_lost_by_the_server_is_not_told_as_lost(group: GroupUnderTest, one: Queue) -> None:
    acked, gone = await hold(one, group, "a", "b")
    await one.ack([acked])
    await group.lose(gone)

    assert await one.renew([acked, gone]) == set()
    assert await one.renew([]) == set()


# -- leave ------------------------------------------------------------------------------------------------------


async def test_who_leaves_and_holds_nothing_is_no_member_any_more(group: GroupUnderTest, one: Queue) -> None:
    held = await hold(one, group, "a")
    await group.entitle(one)
    await one.ack(held)

    assert await one.leave() == 0

    assert await group.members() == set()
    assert (await one.heartbeat(LIFETIME)).is_first, "it may come again"


async def test_what_one_holds_who_leaves_others_claim_at_once(group: GroupUnderTest, one: Queue, two: Queue) -> None:
    await group.add("a", "b", "c")
    deliveries = await one.read(3, NOW)
    await group.entitle(one, two)
    await one.release(deliveries[:1])

    assert await one.leave() == 2

    found = [await two.claim_abandoned(10) for _ in range(2)]
    claimed = [delivery for each in found for delivery in (*each.released, *each.dead)]
    assert sorted((delivery.entry, delivery.count) for delivery in claimed) == [
        (delivery.entry, count) for delivery, count in zip(deliveries, (1, 2, 2), strict=True)
    ]


async def test_when_the_leader_leaves_another_leads_at_its_next_heartbeat(one: Queue, two: Queue) -> None:
    await one.heartbeat(LIFETIME)
    await two.heartbeat(LIFETIME)

    await one.leave()

    assert (await two.heartbeat(LIFETIME)).leads


async def test_reasons_are_reported_until_a_heartbeat_without_them(group: GroupUnderTest, one: Queue) -> None:
    reason = Reason(State.CIRCUIT_OPEN, "HTTP 401", 1_700_000_000.0)

    await one.heartbeat(LIFETIME, report=ProcessReport([reason]))
    during = await group.reasons()
    await one.heartbeat(LIFETIME)

    async def are_gone() -> bool:
        return not await group.reasons()

    await eventually(are_gone)
    assert during == {"one": [reason]}
