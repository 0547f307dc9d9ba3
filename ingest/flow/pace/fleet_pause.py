"""Shares a pause that the external API requests from one process with all processes.

The process that receives the request publishes the pause. Each process with orders in flight checks once a second for a pause, so that
all of them pause within about a second, even without a configured quota. A process without orders checks less often, because there
may be thousands of them. A pause that would end before the others see it is not published.

If the process dies before it has published the pause, the next rejected request publishes it.
"""

import asyncio
import time
from collections.abc import Callable, Sized
from contextlib import suppress

from ingest.domain.errors import Unavailable
from ingest.flow.availability import log_unavailable
from ingest.flow.pace.pauses import Pauses
from ingest.flow.ports import FleetPauses
from ingest.flow.ticks import next_tick
from ingest.telemetry.logs import get_logger

_log = get_logger("fleet_pause")
_LOOK_EVERY = 1.0
# Without orders in flight. Such a process may send a request before it sees the pause.
_LOOK_EVERY_IDLE = 5.0
# Two pauses that end within this time are one.
_SAME = 0.5


class FleetPause:
    """One process's part in the pauses of the fleet."""

    def __init__(
        self,
        fleet: FleetPauses,
        pauses: Pauses,
        held: Sized,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._fleet = fleet
        self._pauses = pauses
        self._held = held
        self._clock = clock
        self._known_until = 0.0
        self._is_unavailable = False

    async def run(self) -> None:
        """Publish the pauses of this process, and keep the pauses of the fleet, until cancelled."""
        idle_until = self._clock()
        while True:
            now = self._clock()
            with suppress(TimeoutError):
                async with asyncio.timeout(next_tick(now, _LOOK_EVERY) - now):
                    await self._pauses.asked.wait()
            self._pauses.asked.clear()
            asked = self._to_publish()
            if not self._held and not asked and self._clock() < idle_until:
                continue
            idle_until = next_tick(self._clock(), _LOOK_EVERY_IDLE)
            await self._exchange(asked)
            # However many requests are rejected, one publication a moment.
            await asyncio.sleep(_SAME / 5)

    def close(self) -> None:
        """The process stops. There is nothing to end."""

    def _to_publish(self) -> float:
        """Seconds of a pause that is not published yet, or 0 without one."""
        until = self._pauses.asked_until
        left = until - self._clock()
        return left if left > 0 and until > self._known_until + _SAME else 0.0

    async def _exchange(self, asked: float) -> None:
        now = self._clock()
        try:
            left = await self._fleet.pause(asked)
        except Unavailable as error:
            # The pause is published as soon as that is possible.
            if not self._is_unavailable:
                log_unavailable(_log, "fleet_pause_unavailable", error)
            self._is_unavailable = True
            return
        self._is_unavailable = False
        if left and now + left > self._known_until + _SAME:
            self._known_until = now + left
            if not asked:
                _log.info("fleet_paused", seconds=round(left, 1))
                self._pauses.pause_for(left)
