"""The table of what a process holds: slots, leases, and what others have claimed."""

import asyncio
from collections.abc import Callable

import pytest
from fakes.virtual_time import now, some_turns, virtual_time
from fakes.workers import gauge

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.held import InFlight


def delivery(number: int, order_id: str = "a") -> Delivery:
    return Delivery(EntryRef("stream", f"{number}-0"), order_id, 1.0, 1, 1, None, {})


def table() -> InFlight:
    return InFlight(gauge(), clock=now)


async def hang() -> None:
    await asyncio.Event().wait()


async def drop(in_flight: InFlight) -> None:
    for task in list(in_flight.tasks):
        task.cancel()
    await asyncio.sleep(0)


@virtual_time
async def test_a_delivery_takes_a_slot_while_its_task_runs_and_is_held_until_it_is_removed() -> None:
    in_flight, freed = table(), []
    in_flight.limit_slots(lambda: 1, lambda: freed.append(len(in_flight.tasks)))
    task = in_flight.start_apart(delivery(1), asyncio.sleep(1.0))
    before = len(in_flight), len(in_flight.tasks)

    await task
    await some_turns()
    between = len(in_flight), len(in_flight.tasks)
    in_flight.remove(delivery(1))
    untouched = len(in_flight)
    [held] = in_flight.held()
    in_flight.remove(held)

    assert (before, between, untouched, len(in_flight)) == ((1, 1), (1, 0), 1, 0), (
        "another delivery of it is not this one"
    )
    assert freed == [0]


@virtual_time
async def test_what_is_lost_and_undecided_is_cancelled_and_what_is_decided_is_not() -> None:
    in_flight, undecided, decided = table(), delivery(1), delivery(2)
    tasks = [in_flight.start_apart(each, hang()) for each in (undecided, decided)]
    in_flight.decided(decided)

    in_flight.lose([undecided.entry, decided.entry, delivery(3).entry])
    await some_turns()

    assert [task.cancelled() for task in tasks] == [True, False]
    assert [in_flight.holds(each) for each in (undecided, decided)] == [False, False]
    await drop(in_flight)


@virtual_time
async def test_another_entry_with_an_id_that_is_held_replaces_it_and_ends_its_processing() -> None:
    in_flight, first, second = table(), delivery(1, "first"), delivery(1, "second")
    task = in_flight.start_apart(first, hang())
    in_flight.start_apart(second, hang())
    await some_turns()

    assert task.cancelled()
    assert (in_flight.holds(first), in_flight.holds(second), len(in_flight)) == (False, True, 1)
    in_flight.decided(first)
    in_flight.remove(first)
    assert in_flight.holds(second), "what comes late of the first changes nothing of the second"
    assert [each.order_id for each, _ in in_flight.undecided()] == ["second"]
    await drop(in_flight)


@virtual_time
async def test_what_has_no_slot_waits_for_one_in_its_turn_unless_it_is_lost_meanwhile() -> None:
    in_flight, begun, ends = table(), list[str](), asyncio.Event()
    in_flight.limit_slots(lambda: 2, lambda: None)

    async def process(each: Delivery) -> None:
        begun.append(each.entry.id)
        await ends.wait()

    deliveries = [delivery(number) for number in range(1, 7)]
    for each in deliveries[:5]:
        in_flight.start([each], process)
    at_once = in_flight.start_apart(deliveries[5], process(deliveries[5]))
    await some_turns()
    first, waiting = list(begun), in_flight.waiting
    held, undecided = in_flight.held(), in_flight.undecided()
    in_flight.lose([deliveries[3].entry])
    ends.set()
    await some_turns()

    assert (first, waiting, held) == (["1-0", "2-0", "6-0"], 3, deliveries)
    assert [each.entry.id for each, task in undecided if task is None] == ["3-0", "4-0", "5-0"]
    assert begun[3:] == ["3-0", "5-0"]
    assert at_once.done()
    await drop(in_flight)


@virtual_time
async def test_a_task_that_has_ended_takes_what_waits_as_far_as_the_limit_is_by_then() -> None:
    in_flight, limit, begun = table(), 2, list[str]()
    ends = {number: asyncio.Event() for number in range(1, 8)}
    in_flight.limit_slots(lambda: limit, lambda: None)

    async def process(each: Delivery) -> None:
        begun.append(each.entry.id)
        await ends[int(each.entry.id.partition("-")[0])].wait()

    async def begun_after(end: int) -> list[str]:
        before = len(begun)
        ends[end].set()
        await some_turns()
        return begun[before:]

    in_flight.start([delivery(number) for number in range(1, 8)], process)
    await some_turns()
    slots = set(in_flight.tasks)

    assert begun == ["1-0", "2-0"]
    assert (await begun_after(1), in_flight.tasks) == (["3-0"], slots), "in the same task"
    limit = 1
    assert (await begun_after(2), len(in_flight.tasks)) == ([], 1)
    assert (await begun_after(3), len(in_flight.tasks)) == (["4-0"], 1)
    limit = 3
    assert (await begun_after(4), len(in_flight.tasks)) == (["5-0", "6-0", "7-0"], 3)
    await drop(in_flight)


@virtual_time
async def test_what_is_to_be_processed_alone_leaves_its_slot_to_what_it_waits_for() -> None:
    in_flight, limit, begun = table(), 2, list[str]()
    in_flight.limit_slots(lambda: limit, lambda: None)

    async def process(each: Delivery) -> None:
        begun.append(each.entry.id)
        await asyncio.sleep(1)
        in_flight.remove(each)

    async def process_alone(each: Delivery) -> None:
        await in_flight.until_at_most(1)
        await process(each)

    for number in range(1, 5):
        in_flight.start([delivery(number)], process)
    alone = in_flight.start_apart(delivery(5), process_alone(delivery(5)))
    limit = 1
    await asyncio.sleep(10)

    assert begun == ["1-0", "2-0", "3-0", "4-0", "5-0"]
    assert alone.done()
    await drop(in_flight)


@pytest.mark.parametrize("end", [InFlight.stop_waiting, InFlight.close])
def test_what_waits_is_not_started_any_more_and_still_held(end: Callable[[InFlight], object]) -> None:
    @virtual_time
    async def run() -> None:
        in_flight, begun = table(), list[str]()
        in_flight.limit_slots(lambda: 1, lambda: None)

        async def process(each: Delivery) -> None:
            begun.append(each.entry.id)
            await asyncio.sleep(1)

        for number in range(1, 4):
            in_flight.start([delivery(number)], process)
        end(in_flight)
        await asyncio.sleep(10)

        assert (begun, in_flight.waiting, len(in_flight)) == (["1-0"], 0, 3)
        await drop(in_flight)

    run()


@virtual_time
async def test_leases_are_told_by_age() -> None:
    in_flight, old, young = table(), delivery(1), delivery(2)
    in_flight.start_apart(old, hang())
    await asyncio.sleep(10)
    in_flight.start_apart(young, hang())
    await asyncio.sleep(5)

    assert in_flight.held(min_age=15) == [old]
    assert in_flight.held(min_age=5) == [old, young]
    assert in_flight.held(min_age=15.1) == []
    await drop(in_flight)


@virtual_time
async def test_one_can_wait_until_no_more_than_some_entries_are_held() -> None:
    in_flight = table()
    deliveries = [delivery(number) for number in range(3)]
    for each in deliveries:
        in_flight.start_apart(each, hang())
    waiting = asyncio.create_task(in_flight.until_at_most(1))

    in_flight.remove(deliveries[0])
    await some_turns()
    early = waiting.done()
    in_flight.lose([deliveries[1].entry])
    await some_turns()

    assert (early, waiting.done()) == (False, True)
    await drop(in_flight)
