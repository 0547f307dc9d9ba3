"""Replaces a transport that has failed.

A transport fails because of a bug in it or in its library, or because memory or file descriptors have run out. No order is
the cause, so the next request uses a new transport. The old one is closed when no request can be running on it any more.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Self

from ingest.telemetry.logs import get_logger
from ingest.upstream.http.transport import Transport

_log = get_logger("upstream")

Send = Callable[..., Awaitable[bytes]]
Opener = Callable[[], AbstractAsyncContextManager[Transport]]

# A new transport that fails within this time is not replaced, because it is not the cause.
_SETTLING = 1.0
# A failure is logged with its traceback at most this often. Further ones are counted.
_LOG_EVERY = 60.0


class ReplaceableTransport:
    """The transport in use, replaced when it fails.

    Attributes:
        send: the method of the transport in use, see `Transport`.

    Args:
        opener: opens a transport.
        longest: seconds after which no request is running on a replaced transport.
        clock: monotonic seconds.
    """

    send: Send

    def __init__(self, opener: Opener, longest: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._opener = opener
        self._longest = longest
        self._clock = clock
        self._stack = AsyncExitStack()
        self._opened_at = 0.0
        self._logged_at: float | None = None
        self._suppressed = 0
        self._retired: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(self, *_: object) -> None:
        for closing in self._retired:
            closing.cancel()
        if self._retired:
            await asyncio.wait(self._retired)
        await self._stack.aclose()

    async def replace(self, failed: Send, error: Exception) -> None:
        """Replace the transport to which `failed` belongs, if it is still in use and was not opened just now."""
        self.report(error)
        if self.send is not failed or self._clock() < self._opened_at + _SETTLING:
            return
        try:
            await self.reopen()
        except Exception:  # noqa: BLE001  any failure to open one, which is tried again
            _log.exception("transport_not_replaced")

    async def reopen(self) -> None:
        """Use a new transport from now on. Running requests finish on the old one.

        Raises:
            Exception: it cannot be opened. Then the old one stays in use.
        """
        old = await self._open()
        closing = asyncio.create_task(self._close_later(old))
        self._retired.add(closing)
        closing.add_done_callback(self._retired.discard)

    async def _open(self) -> AsyncExitStack:
        """Open a transport and use it, and return the function that closes the previous one."""
        self._opened_at = self._clock()
        stack = AsyncExitStack()
        transport = await stack.enter_async_context(self._opener())
        old, self._stack, self.send = self._stack, stack, transport.send
        return old

    async def _close_later(self, stack: AsyncExitStack) -> None:
        try:
            await asyncio.sleep(self._longest)
        finally:
            try:
                await stack.aclose()
            except Exception as error:  # noqa: BLE001  it has failed already, and a failure to close adds nothing
                _log.debug("transport_not_closed", error=str(error))

    def report(self, error: Exception) -> None:
        """Log a failure of ours, unless one was logged lately."""
        now = self._clock()
        if self._logged_at is not None and now < self._logged_at + _LOG_EVERY:
            self._suppressed += 1
            return
        _log.error("transport_failed", suppressed=self._suppressed, exc_info=error)
        self._logged_at, self._suppressed = now, 0
