"""Stops a worker in two phases: it first finishes its deliveries, then releases the rest.

`requested` means that the worker stops reading and finishes the deliveries in flight. `overdue` means that the grace period has ended, or
the stop was requested twice, so that it releases the unfinished deliveries.
"""

import asyncio
import time

from ingest.telemetry.logs import get_logger

_log = get_logger("shutdown")

# A process manager that signals the whole group, and a supervisor that forwards its own signal, count as one request.
_SAME_REQUEST = 1.0


class Shutdown:
    """The stop of one process.

    Args:
        grace: seconds from the request until `overdue`.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._requested_at = 0.0
        self.requested = asyncio.Event()
        self.overdue = asyncio.Event()

    def request(self, cause: str) -> None:
        """Request the stop. A second request, more than a moment later, ends the grace period."""
        if self.requested.is_set():
            if time.monotonic() - self._requested_at > _SAME_REQUEST and not self.overdue.is_set():
                _log.warning("shutdown_forced", cause=cause)
                self.overdue.set()
            return
        self._requested_at = time.monotonic()
        _log.info("stop_requested", cause=cause, grace=self._grace)
        self.requested.set()
        asyncio.get_running_loop().call_later(self._grace, self.overdue.set)

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until the stop is requested."""
        try:
            async with asyncio.timeout(seconds):
                await self.requested.wait()
        except TimeoutError:
            return
