"""Combines concurrent calls. Keys that are requested during a call share the next one.

So a result is never older than its request, and all waiting requests share the cost of a call.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, TypeVar

_K = TypeVar("_K")
_V = TypeVar("_V")


class SharedCalls(Generic[_K, _V]):
    """Makes one call for many keys.

    Args:
        call: returns a result for every key.
        most: maximum number of keys of a call.
        rest: returns the seconds to pause after each call, to limit the load on the server.
    """

    def __init__(
        self,
        call: Callable[[Sequence[_K]], Awaitable[Mapping[_K, _V]]],
        *,
        most: int,
        rest: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._call = call
        self._most = most
        self._rest = rest
        self._waiting: dict[_K, list[asyncio.Future[_V]]] = {}
        self._calling: asyncio.Task[None] | None = None

    def __call__(self, key: _K) -> "asyncio.Future[_V]":
        """Return a future for the result of a key. It raises the exception of the call, and may be cancelled."""
        result: asyncio.Future[_V] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(result)
        if self._calling is None:
            self._calling = asyncio.create_task(self._make_calls())
        return result

    async def close(self) -> None:
        """Make no more calls, and cancel waiting requests."""
        if (calling := self._calling) is not None:
            calling.cancel()
            await asyncio.wait([calling])
        for results in self._waiting.values():
            for result in results:
                result.cancel()

    async def _make_calls(self) -> None:
        try:
            while self._waiting:
                keys = list(self._waiting)[: self._most]
                requests = {key: self._waiting.pop(key) for key in keys}
                try:
                    await self._resolve(requests)
                finally:
                    for result in (each for results in requests.values() for each in results):
                        result.cancel()  # no effect on futures that are done
                if pause := self._rest():
                    await asyncio.sleep(pause)
        finally:
            # No await lies between this and the last check for requests, so that the next request starts a task.
            self._calling = None

    async def _resolve(self, requests: Mapping[_K, Sequence["asyncio.Future[_V]"]]) -> None:
        try:
            found: Mapping[_K, _V] | Exception = await self._call(list(requests))
        except Exception as error:  # noqa: BLE001  raised to the waiting callers
            found = error
        for key, results in requests.items():
            for result in results:
                if result.done():
                    continue
                if isinstance(found, Exception):
                    result.set_exception(found)
                else:
                    result.set_result(found[key])
