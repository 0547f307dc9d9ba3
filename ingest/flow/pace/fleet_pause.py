"""Carries a pause that the external API asks for to all processes: it asked one of them, and means all.

The process that was told publishes the pause, and each process that has orders in flight asks once a second whether there is one; so all
pause about a second later, also those that have nothing to do with the order that was refused, and without a configured quota. A
process without orders asks less often, as thousands may have none. A pause that is over before the others would learn of it is
not published.

If the process dies before it has published, the next request that is refused publishes it.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sized
from contextlib import suppress

from ingest.domain.errors import Unavailable
from ingest.flow.availability import log_unavailable
from ingest.flow.pace.pauses import Pacing
from ingest.flow.ports import FleetPauses
from ingest.telemetry.logs import get_logger

_log = get_logger("fleet_pause")
_LOOK_EVERY = 1.0
# As often without orders in flight: such a process may send a request or so before it knows.
_IDLE_LOOKS = 5
# Others would learn of a shorter one when it is about over.
SHORTEST = 2.0
# Two pauses that end within this time are one.
_SAME = 0.5


class FleetPause:
    """The pauses of the fleet, as one process takes part in them.

    Args:
        pauses: where they are published.
        pacing: this process's own pauses.
        in_flight: what this process holds.
        shortest: seconds of a pause that is worth publishing.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments: processes do not ask in step.
    """

    def __init__(
        self,
        pauses: FleetPauses,
        pacing: Pacing,
        in_flight: Sized,
        *,
        shortest: float = SHORTEST,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._pauses = pauses
        self._pacing = pacing
        self._in_flight = in_flight
        self._shortest = shortest
        self._clock = clock
        self._draw = draw
        self._told_until = self._known_until = 0.0
        self._was_told = asyncio.Event()
        self._is_unavailable = False
        pacing.on_told = self._told

    async def run(self) -> None:
        """Publish what this process is told, and keep the pauses of the fleet, until cancelled."""
        idle = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._draw(0.9, 1.1) * _LOOK_EVERY):
                    await self._was_told.wait()
            idle = 0 if self._in_flight or self._told_until else idle + 1
            if idle % _IDLE_LOOKS:
                continue
            self._was_told.clear()
            await self._exchange()
            # However many requests are refused, one publication a moment.
            await asyncio.sleep(_SAME / 5)

    def close(self) -> None:
        """The process stops: nothing is left to pause."""

    def _told(self, seconds: float) -> None:
        until = self._clock() + seconds
        if seconds >= self._shortest and until > self._known_until + _SAME:
            self._told_until = max(self._told_until, until)
            self._was_told.set()

    async def _exchange(self) -> None:
        now = self._clock()
        told_until = self._told_until
        told = max(0.0, told_until - now)
        try:
            left = await self._pauses.pause(told)
        except Unavailable as error:
            # What was told is published as soon as that is possible.
            if not self._is_unavailable:
                log_unavailable(_log, "fleet_pause_unavailable", error)
            self._is_unavailable = True
            return
        self._is_unavailable = False
        if self._told_until == told_until:
            self._told_until = 0.0
        if left and now + left > self._known_until + _SAME:
            self._known_until = now + left
            if not told:
                _log.info("fleet_paused", seconds=round(left, 1))
                self._pacing.pause_for(left)
