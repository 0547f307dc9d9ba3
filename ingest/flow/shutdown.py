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
        self._parts: list[Shutdown] = []
        self.requested = asyncio.Event()
        self.overdue = asyncio.Event()

    def request(self, cause: str) -> None:
        """Request the stop. A second request, more than a moment later, ends the grace period."""
        if self.requested.is_set():
            if time.monotonic() - self._requested_at > _SAME_REQUEST and not self.overdue.is_set():
                _log.warning("shutdown_forced", cause=cause)
                self._end_grace()
            return
        _log.info("stop_requested", cause=cause, grace=self._grace)
        self._begin()
        asyncio.get_running_loop().call_later(self._grace, self._end_grace)

    def part(self) -> "Shutdown":
        """Return the stop of one part of the process. It is requested with this stop, or for itself before."""
        part = Shutdown(self._grace)
        if self.requested.is_set():
            part._begin()
        if self.overdue.is_set():
            part._end_grace()
        self._parts = [other for other in self._parts if not other.overdue.is_set()]
        self._parts.append(part)
        return part

    async def pause(self, seconds: float) -> None:
        """Wait for `seconds`, or until the stop is requested."""
        try:
            async with asyncio.timeout(seconds):
                await self.requested.wait()
        except TimeoutError:
            return

    def _begin(self) -> None:
        self._requested_at = time.monotonic()
        self.requested.set()
        for part in self._parts:
            part._begin()  # noqa: SLF001  of the same class

    def _end_grace(self) -> None:
        self.overdue.set()
        for part in self._parts:
            part._end_grace()  # noqa: SLF001  as above
