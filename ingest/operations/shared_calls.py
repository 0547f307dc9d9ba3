"""Lets concurrent calls share one: what is asked for while one is made is asked for together by the next.

So an answer is never older than its question, and what a call costs is shared by all that wait for it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class SharedCalls(Generic[_K, _V]):
    """Makes one call for many keys.

    Args:
        call: answers for keys; for every one of them.
        most: keys of a call.
        at_once: calls at a time.
        rest: seconds to pause after each call, asked for then; limits what calls cost the server.
    """

    def __init__(
        self,
        call: Callable[[Sequence[_K]], Awaitable[Mapping[_K, _V]]],
        *,
        most: int,
        at_once: int = 1,
        rest: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._call = call
        self._most = most
        self._at_once = at_once
        self._rest = rest
        self._waiting: dict[_K, list[asyncio.Future[_V]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = 0

    def __call__(self, key: _K) -> "asyncio.Future[_V]":
        """The answer for a key, when it is there; it raises what the call raises, and may be cancelled."""
        answer: asyncio.Future[_V] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(answer)
        if self._running < self._at_once:
            self._running += 1
            task = asyncio.create_task(self._make_calls())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return answer

    async def close(self) -> None:
        """Make no more calls; those who wait are cancelled."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for answers in self._waiting.values():
            for answer in answers:
                answer.cancel()

    async def _make_calls(self) -> None:
        # Not by the set of tasks, which a task leaves a moment after it has looked for the last time.
        try:
            await self._until_nobody_waits()
        finally:
            self._running -= 1

    async def _until_nobody_waits(self) -> None:
        while self._waiting:
            keys = list(self._waiting)[: self._most]
            answers = {key: self._waiting.pop(key) for key in keys}
            try:
                await self._answer(answers)
            finally:
                for answer in (each for waiting in answers.values() for each in waiting):
                    answer.cancel()  # of those that are done, this changes nothing
            if pause := self._rest():
                await asyncio.sleep(pause)

    async def _answer(self, answers: Mapping[_K, Sequence["asyncio.Future[_V]"]]) -> None:
        try:
            found = await self._call(list(answers))
        except Exception as error:  # noqa: BLE001  whatever it is, it is raised in those who wait
            for answer in _open(answers):
                answer.set_exception(error)
            return
        for key, waiting in answers.items():
            for answer in waiting:
                if not answer.done():
                    answer.set_result(found[key])


def _open(answers: Mapping[_K, Sequence["asyncio.Future[_V]"]]) -> list["asyncio.Future[_V]"]:
    return [answer for waiting in answers.values() for answer in waiting if not answer.done()]
