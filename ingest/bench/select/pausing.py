"""Makes a slow call in some requests in three ways, to measure the effect on all other requests."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from itertools import count
from typing import Any


async def _none(seconds: float) -> None:
    """The measure for the others."""
    del seconds


async def _blocking(seconds: float) -> None:
    time.sleep(seconds)  # noqa: ASYNC251  the measured mistake


async def _thread(seconds: float) -> None:
    await asyncio.to_thread(time.sleep, seconds)


_CALLS: dict[str, Callable[[float], Awaitable[Any]]] = {
    "none": _none,
    "blocking": _blocking,
    "awaited": asyncio.sleep,
    "thread": _thread,
}


class Pause:
    """Makes a call of `seconds` in every `every`-th request."""

    def __init__(self, name: str, every: int, seconds: float) -> None:
        self._call = _CALLS[name]
        self._every = every
        self._seconds = seconds
        self._requests = count(1)

    async def __call__(self) -> None:
        """Count a request, and make the call if it is due."""
        if next(self._requests) % self._every == 0:
            await self._call(self._seconds)
