"""How many callers go on in one iteration of the event loop."""

import asyncio

from ingest.upstream.http.turns import Turns


async def go_on(turns: Turns, number: int, began: list[int]) -> None:
    await turns.take()
    began.append(number)


async def begun_in_each_iteration(began: list[int], count: int) -> list[int]:
    """How many more have begun after each of so many iterations."""
    seen = []
    for _ in range(count):
        before = len(began)
        await asyncio.sleep(0)
        seen.append(len(began) - before)
    return seen


async def test_a_few_go_on_in_each_iteration_in_their_order() -> None:
    turns, began = Turns(3), list[int]()
    tasks = [asyncio.create_task(go_on(turns, number, began)) for number in range(10)]

    in_each = await begun_in_each_iteration(began, 8)

    assert began == list(range(10))
    assert max(in_each) == 3
    assert all(task.done() for task in tasks)


async def test_the_turn_of_one_that_is_cancelled_goes_to_the_next() -> None:
    turns, began = Turns(1), list[int]()
    tasks = [asyncio.create_task(go_on(turns, number, began)) for number in range(4)]
    await asyncio.sleep(0)
    for task in tasks[1:3]:
        task.cancel()

    assert await begun_in_each_iteration(began, 3) == [0, 1, 0]
    assert began == [0, 3]


async def test_those_that_come_later_wait_behind_those_that_wait() -> None:
    turns, began = Turns(1), list[int]()
    first = [asyncio.create_task(go_on(turns, number, began)) for number in range(3)]
    await asyncio.sleep(0)
    later = asyncio.create_task(go_on(turns, 3, began))

    await asyncio.gather(*first, later)

    assert began == [0, 1, 2, 3]
