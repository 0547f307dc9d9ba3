"""Tasks that process one delivery after the other, since a new task for each would cost twice as much.

Nothing here outlives the process.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Processing = Coroutine[Any, Any, None]


class TaskPool:
    """Runs coroutines, each in a task that runs no other meanwhile.

    A task that is cancelled ends with its coroutine, even if that has not begun yet, and even if it swallows the cancellation.

    Args:
        on_free: called with a task when it has nothing to run any more: another coroutine may be started.
    """

    def __init__(self, on_free: Callable[[asyncio.Task[None]], None]) -> None:
        self._on_free = on_free
        self._idle: list[tuple[asyncio.Task[None], asyncio.Future[Processing]]] = []
        self._is_closed = False
        # The task that has just become free, and what it is given before it waits: most often the next one is there already.
        self._free: asyncio.Task[None] | None = None
        self._next: Processing | None = None

    def start(self, processing: Processing) -> asyncio.Task[None]:
        """Run a coroutine; returns the task that does."""
        if self._free is not None:
            task, self._free, self._next = self._free, None, processing
            return task
        while self._idle:
            task, given = self._idle.pop()
            if not given.done():  # the task was not cancelled
                given.set_result(processing)
                return task
        task = asyncio.create_task(self._run(processing))
        # It would never be awaited if the task was cancelled before it begins; closing one that has ended does nothing.
        task.add_done_callback(lambda _: processing.close())
        task.add_done_callback(self._on_free)
        return task

    def close(self) -> None:
        """Let each task end with what it runs now; those that run nothing end at once."""
        self._is_closed = True
        for task, _ in self._idle:
            task.cancel()
        self._idle.clear()

    async def _run(self, processing: Processing) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  it runs this
        create_future = asyncio.get_running_loop().create_future
        while True:
            await processing
            if self._is_closed or task.cancelling():
                return
            self._free = task
            self._on_free(task)
            self._free = None
            if self._next is not None:
                processing, self._next = self._next, None
                continue
            given: asyncio.Future[Processing] = create_future()
            self._idle.append((task, given))
            try:
                processing = await given
            except asyncio.CancelledError:
                if not given.cancelled():
                    given.result().close()
                raise
