"""The transport in use, and its replacement when it has broken.

A transport breaks by a bug in it or in its library, or for want of memory or file descriptors. No order is to blame for that,
so the next request gets a new one. The old one is closed when nothing can run on it any more.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Self

from ingest.telemetry.logs import get_logger
from ingest.upstream.transport import Transport

_log = get_logger("upstream")

Get = Callable[[str], Awaitable[bytes]]
Clock = Callable[[], float]
Opener = Callable[[], AbstractAsyncContextManager[Transport]]

# A new transport that breaks within this time is not replaced: what is wrong is not the transport.
_SETTLING = 1.0
# A break is logged with its traceback this often; those between are counted.
_TELL_EVERY = 60.0


class RenewedTransport:
    """One transport after the other.

    Attributes:
        get: that of the transport in use, see `Transport`.

    Args:
        opener: opens a transport.
        longest: seconds after which no request runs on a transport that was replaced.
        clock: monotonic seconds.
    """

    get: Get

    def __init__(self, opener: Opener, longest: float, clock: Clock = time.monotonic) -> None:
        self._opener = opener
        self._longest = longest
        self._clock = clock
        self._stack = AsyncExitStack()
        self._opened_at = 0.0
        self._told_at: float | None = None
        self._untold = 0
        self._retired: set[asyncio.Task[None]] = set()

    @classmethod
    @asynccontextmanager
    async def open(cls, opener: Opener, longest: float, clock: Clock = time.monotonic) -> AsyncIterator[Self]:
        """With a first transport."""
        renewed = cls(opener, longest, clock)
        await renewed._open()
        try:
            yield renewed
        finally:
            for closing in renewed._retired:
                closing.cancel()
            if renewed._retired:
                await asyncio.wait(renewed._retired)
            await renewed._stack.aclose()

    async def replace(self, broken: Get, error: Exception) -> None:
        """Replace the transport with this `get`, if it is the one in use and was not opened just now."""
        self._tell(error)
        if self.get is not broken or self._clock() < self._opened_at + _SETTLING:
            return
        old = self._stack
        try:
            await self._open()
        except Exception:  # noqa: BLE001  whatever keeps it from opening keeps us from asking, and is tried again
            _log.exception("transport_not_replaced")
            self._stack = old
            return
        closing = asyncio.create_task(self._close_later(old))
        self._retired.add(closing)
        closing.add_done_callback(self._retired.discard)

    async def _open(self) -> None:
        self._opened_at = self._clock()
        self._stack = AsyncExitStack()
        transport = await self._stack.enter_async_context(self._opener())
        self.get = transport.get

    async def _close_later(self, stack: AsyncExitStack) -> None:
        try:
            await asyncio.sleep(self._longest)
        finally:
            try:
                await stack.aclose()
            except Exception as error:  # noqa: BLE001  it is broken: that it cannot be closed is no news
                _log.debug("transport_not_closed", error=str(error))

    def _tell(self, error: Exception) -> None:
        now = self._clock()
        if self._told_at is not None and now < self._told_at + _TELL_EVERY:
            self._untold += 1
            return
        _log.error("transport_failed", not_shown=self._untold, exc_info=error)
        self._told_at, self._untold = now, 0
