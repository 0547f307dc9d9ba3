"""The table of the deliveries of a process, with leases and deliveries that other processes have claimed."""

import asyncio

from fakes.virtual_time import now, some_turns, virtual_time

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.held import Held


def delivery(number: int, order_id: str = "a") -> Delivery:
    return Delivery(EntryRef("stream", f"{number}-0"), order_id, 1.0, 1, 1, None, {})


class Table(Held):
    """A table whose deliveries are processed without end."""

    def __init__(self) -> None:
        super().__init__(clock=now)
        self.tasks: list[asyncio.Task[None]] = []

    def start(self, *deliveries: Delivery) -> list["asyncio.Task[None]"]:
        tasks = [asyncio.create_task(asyncio.sleep(3_600)) for _ in deliveries]
        for each, task in zip(deliveries, tasks, strict=True):
            self.add(each, task)
        self.tasks += tasks
        return tasks

    async def drop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await some_turns()


@virtual_time
async def test_another_delivery_of_an_entry_is_not_this_one() -> None:
    table = Table()
    table.start(delivery(1))

    table.remove(delivery(1))
    untouched = len(table)
    table.remove(*table.deliveries())

    assert (untouched, len(table)) == (1, 0)
    await table.drop()


@virtual_time
async def test_what_is_lost_and_undecided_is_cancelled_and_what_is_decided_is_not() -> None:
    table, undecided, decided = Table(), delivery(1), delivery(2)
    tasks = table.start(undecided, decided)
    table.mark_decided(decided)
    decided_tasks = table.decided_tasks()

    table.lose([undecided.entry, decided.entry, delivery(3).entry])
    await some_turns()

    assert decided_tasks == {tasks[1]}
    assert [task.cancelled() for task in tasks] == [True, False]
    assert [table.holds(each) for each in (undecided, decided)] == [False, False]
    await table.drop()


@virtual_time
async def test_another_entry_with_an_id_that_is_held_replaces_it_and_ends_its_processing() -> None:
    table, first, second = Table(), delivery(1, "first"), delivery(1, "second")
    [task] = table.start(first)
    table.start(second)
    await some_turns()

    assert task.cancelled()
    assert (table.holds(first), table.holds(second), len(table)) == (False, True, 1)
    table.mark_decided(first)
    table.remove(first)
    assert table.holds(second), "what comes late of the first changes nothing of the second"
    assert [each.order_id for each, _ in table.undecided()] == ["second"]
    await table.drop()


@virtual_time
async def test_an_entry_that_is_being_released_may_be_delivered_again() -> None:
    table, first, second = Table(), delivery(1), delivery(1)
    [task] = table.start(first)
    table.mark_leaving([first])
    kept = table.kept()
    table.start(second)
    await some_turns()

    assert (kept, task.done(), table.holds(second)) == (set(), False, True)
    await table.drop()


@virtual_time
async def test_leases_are_listed_by_age() -> None:
    table, old, young = Table(), delivery(1), delivery(2)
    table.start(old)
    await asyncio.sleep(10)
    table.start(young)
    await asyncio.sleep(5)

    assert table.deliveries(min_age=15) == [old]
    assert table.deliveries(min_age=5) == [old, young]
    assert table.deliveries(min_age=15.1) == []
    await table.drop()


@virtual_time
async def test_one_can_wait_until_no_more_than_some_entries_are_held() -> None:
    table, deliveries = Table(), [delivery(number) for number in range(3)]
    table.start(*deliveries)
    waiting = asyncio.create_task(table.until_at_most(1))

    table.remove(deliveries[0])
    await some_turns()
    early = waiting.done()
    table.lose([deliveries[1].entry])
    await some_turns()

    assert (early, waiting.done()) == (False, True)
    await table.drop()
