"""Each implementation publishes the result of each order in the step that finishes it."""

import pytest
from contract.ports.groups import NOW, GroupUnderTest

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.domain.deliveries.result import Finished, Result, ResultKind
from ingest.services.worker_parts import Queue

AGE = 3600.0


@pytest.fixture
async def telling(group: GroupUnderTest) -> Queue:
    """A consumer that keeps results."""
    return await group.consumer("telling", results_age=AGE)


async def hold(consumer: Queue, group: GroupUnderTest, *order_ids: str) -> list[Delivery]:
    await group.add(*order_ids)
    deliveries = await consumer.read(len(order_ids), NOW)
    assert len(deliveries) == len(order_ids)
    return deliveries


def stored(delivery: Delivery) -> Finished:
    return Finished(delivery.entry, (Result(str(delivery.order_id), ResultKind.INSERTED),))


async def test_what_is_finished_is_told_once(group: GroupUnderTest, telling: Queue) -> None:
    a, b, c = await hold(telling, group, "a", "b", "c")
    parts = Finished(b.entry, (Result("b", ResultKind.CHANGED), Result("b-2", ResultKind.INSERTED, "b")))

    # Sent again after a lost reply, it publishes no result.
    told = [await telling.ack_with_results([stored(a), parts]) for _ in range(2)]

    assert told == [2, 0]
    assert await group.results() == [("a", "inserted"), ("b", "changed"), ("b-2", "inserted")]
    assert set(await group.pending()) == {c.entry}
    assert [await group.exists(each.entry) for each in (a, b, c)] == [False, False, True]


async def test_of_an_entry_that_another_has_claimed_nothing_is_told(
    group: GroupUnderTest, telling: Queue, two: Queue
) -> None:
    [delivery] = await hold(telling, group, "a")
    await group.entitle(telling, two)
    await group.end_heartbeat("telling")
    assert len((await two.claim_abandoned(1)).dead) == 1

    assert await telling.ack_with_results([stored(delivery)]) == 0
    assert not await telling.dead_letter(delivery, DeadReason.REJECTED, "HTTP 422")

    assert await group.results() == []
    assert set(await group.pending()) == {delivery.entry}


async def test_a_dead_letter_is_told_once(group: GroupUnderTest, telling: Queue) -> None:
    [delivery] = await hold(telling, group, "a")

    moved = [await telling.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404") for _ in range(2)]

    assert moved == [True, False]
    assert await group.results() == [("a", "dead_lettered")]
    assert await group.dead() == [("a", "not_found")]


async def test_retries_and_releases_are_not_told(group: GroupUnderTest, telling: Queue) -> None:
    a, b = await hold(telling, group, "a", "b")

    await telling.reschedule(a, 0.0, 2)
    await telling.release([b])

    assert await group.results() == []


async def test_without_the_setting_nothing_is_told(group: GroupUnderTest, one: Queue) -> None:
    a, b = await hold(one, group, "a", "b")

    await one.ack([a.entry])
    await one.dead_letter(b, DeadReason.NOT_FOUND, "HTTP 404")

    assert (one.keeps_results, await group.results()) == (False, [])


async def test_more_results_than_one_step_takes_are_told_in_several(group: GroupUnderTest, telling: Queue) -> None:
    held = await hold(telling, group, *(f"order-{number}" for number in range(450)))
    many = tuple(Result(f"part-{number}", ResultKind.INSERTED) for number in range(300))
    [extra] = await hold(telling, group, "all")

    assert await telling.ack_with_results([*map(stored, held), Finished(extra.entry, many)]) == 451

    told = await group.results()
    assert len(told) == len(set(told)) == 750
