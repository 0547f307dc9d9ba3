"""How a worker is asked to stop: first to finish, then to release.

`requested` means: read nothing more, finish what is in flight. `overdue` means: the grace period is over, or the stop was
requested twice; release what is not finished.
"""

import asyncio
import time

from ingest.telemetry.logs import get_logger

_log = get_logger("shutdown")

# A process manager that signals the whole group, and a supervisor that passes its own signal on, ask once.
_SAME_REQUEST = 1.0


class Shutdown:
    """One process's stop, in two phases.

    Args:
        grace: seconds from the request until `overdue`.
    """

    def __init__(self, grace: float) -> None:
        self._grace = grace
        self._requested_at = 0.0
        self.requested = asyncio.Event()
        self.overdue = asyncio.Event()

    def request(self, cause: str) -> None:
        """Request the stop; requested again, more than a moment later, the grace period is over."""
        if self.requested.is_set():
            if time.monotonic() - self._requested_at > _SAME_REQUEST and not self.overdue.is_set():
                _log.warning("stop_hurried", cause=cause)
                self.overdue.set()
            return
        self._requested_at = time.monotonic()
        _log.info("stop_requested", cause=cause, grace=self._grace)
        self.requested.set()
        asyncio.get_running_loop().call_later(self._grace, self.overdue.set)

    async def pause(self, seconds: float) -> None:
        """Wait, but no longer than until the request."""
        try:
            async with asyncio.timeout(seconds):
                await self.requested.wait()
        except TimeoutError:
            return
