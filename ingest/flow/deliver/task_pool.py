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
        following: called with a task that has run its coroutine; returns what it runs next, or None: then it is idle.
        on_end: called with a task that has ended.
    """

    def __init__(
        self,
        following: Callable[[asyncio.Task[None]], Processing | None],
        on_end: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._following = following
        self._on_end = on_end
        self._idle: list[tuple[asyncio.Task[None], asyncio.Future[Processing]]] = []
        self._is_closed = False

    def start(self, processing: Processing) -> asyncio.Task[None]:
        """Run a coroutine; returns the task that does."""
        while self._idle:
            task, given = self._idle.pop()
            if not given.done():  # the task was not cancelled
                given.set_result(processing)
                return task
        task = asyncio.create_task(self._run(processing))
        # It would never be awaited if the task was cancelled before it begins; closing one that has ended does nothing.
        task.add_done_callback(lambda _: processing.close())
        task.add_done_callback(self._on_end)
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
            following = self._following(task)
            if following is None:
                given: asyncio.Future[Processing] = create_future()
                self._idle.append((task, given))
                try:
                    following = await given
                except asyncio.CancelledError:
                    if not given.cancelled():
                        given.result().close()
                    raise
            processing = following
