"""Tasks that process one delivery after the other."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from fakes.virtual_time import some_turns

from ingest.flow.deliver.task_pool import Processing, TaskPool

Task = asyncio.Task[None]


class Pool:
    """A pool, and which of its tasks became free."""

    def __init__(self) -> None:
        self.freed: list[Task] = []
        self.done: list[str] = []
        self.next: list[Processing] = []
        self.pool = TaskPool(self._following, self.freed.append)
        self.tasks: set[Task] = set()

    def start(self, name: str, until: asyncio.Event | None = None) -> Task:
        task = self.pool.start(self.work(name, until))
        self.tasks.add(task)
        return task

    def _following(self, task: Task) -> Processing | None:
        self.freed.append(task)
        return self.next.pop(0) if self.next else None

    async def work(self, name: str, until: asyncio.Event | None = None) -> None:
        if until is not None:
            await until.wait()
        self.done.append(name)


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    pool = Pool()
    yield pool
    pool.pool.close()
    for task in pool.tasks:
        task.cancel()
    await some_turns()


async def test_a_task_that_is_free_takes_what_comes_next(pool: Pool) -> None:
    first = pool.start("a")
    await some_turns()

    second = pool.start("b")
    await some_turns()

    assert second is first
    assert (pool.done, pool.freed) == (["a", "b"], [first, first])


async def test_what_runs_at_the_same_time_has_tasks_of_its_own(pool: Pool) -> None:
    gate = asyncio.Event()
    first, second = pool.start("a", gate), pool.start("b", gate)
    await some_turns()
    before = list(pool.freed)
    gate.set()
    await some_turns()

    assert first is not second
    assert (before, pool.freed, pool.done) == ([], [first, second], ["a", "b"])


async def test_what_is_there_when_a_task_becomes_free_runs_in_it_at_once(pool: Pool) -> None:
    pool.next += [pool.work("b"), pool.work("c")]

    task = pool.start("a")
    await some_turns()

    assert (pool.done, pool.freed) == (["a", "b", "c"], [task] * 3)
    assert pool.start("d") is task


async def test_a_task_that_is_cancelled_in_what_it_was_given_at_once_is_free_and_is_not_used_again(pool: Pool) -> None:
    pool.next.append(pool.work("b", asyncio.Event()))
    task = pool.start("a")
    await some_turns()
    given = not pool.next
    task.cancel()
    await some_turns()

    assert given
    assert task.cancelled()
    assert (pool.done, pool.freed) == (["a"], [task, task])
    assert pool.start("c") is not task


async def test_a_cancelled_task_is_free_and_is_not_used_again(pool: Pool) -> None:
    task = pool.start("a", asyncio.Event())
    await some_turns()
    task.cancel()
    await some_turns()

    other = pool.start("b")
    await some_turns()

    assert task.cancelled()
    assert other is not task
    assert (pool.done, pool.freed) == (["b"], [task, other])


async def test_a_task_that_is_cancelled_while_it_is_idle_is_not_used_again(pool: Pool) -> None:
    task = pool.start("a")
    await some_turns()
    task.cancel()

    other = pool.start("b")
    await some_turns()

    assert (task.cancelled(), other is not task, pool.done) == (True, True, ["a", "b"])


async def test_what_a_task_was_given_and_has_not_begun_ends_with_it(pool: Pool) -> None:
    task = pool.start("a")
    await some_turns()
    begun: Processing = _never()

    assert pool.pool.start(begun) is task
    task.cancel()
    await some_turns()

    assert task.cancelled()
    assert begun.cr_running is False  # type: ignore[attr-defined]
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        begun.send(None)
    assert pool.freed == [task, task], "its slot is free"


async def test_what_a_new_task_has_not_begun_ends_with_it(pool: Pool) -> None:
    begun: Processing = _never()

    task = pool.pool.start(begun)
    task.cancel()
    await some_turns()

    assert task.cancelled()
    with pytest.raises(RuntimeError, match="cannot reuse already awaited coroutine"):
        begun.send(None)
    assert pool.freed == [task]


async def test_a_task_whose_cancellation_was_swallowed_ends_all_the_same(pool: Pool) -> None:
    async def swallow() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()

    task = pool.pool.start(swallow())
    await some_turns()
    task.cancel()
    await some_turns()

    assert task.done(), "who has cancelled it waits for its end"
    assert pool.start("a") is not task


async def test_after_the_end_each_task_ends_with_what_it_runs(pool: Pool) -> None:
    gate = asyncio.Event()
    idle, busy = pool.start("a"), pool.start("b", gate)
    await some_turns()

    pool.pool.close()
    await some_turns()
    between = idle.done(), busy.done()
    gate.set()
    await some_turns()

    assert (between, busy.done(), busy.cancelled()) == ((True, False), True, False)
    assert pool.done == ["a", "b"]


async def _never() -> None:
    raise AssertionError("begun")
