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
from ingest.flow.pace.pauses import Pauses
from ingest.flow.ports import FleetPauses
from ingest.telemetry.logs import get_logger

_log = get_logger("fleet_pause")
_LOOK_EVERY = 1.0
# As often without orders in flight: such a process may send a request or so before it knows.
_IDLE_LOOKS = 5
# Two pauses that end within this time are one.
_SAME = 0.5


class FleetPause:
    """The pauses of the fleet, as one process takes part in them.

    Args:
        fleet: where they are published.
        pauses: this process's own pauses.
        held: what this process holds.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments: processes do not ask in step.
    """

    def __init__(
        self,
        fleet: FleetPauses,
        pauses: Pauses,
        held: Sized,
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._fleet = fleet
        self._pauses = pauses
        self._held = held
        self._clock = clock
        self._draw = draw
        self._known_until = 0.0
        self._is_unavailable = False

    async def run(self) -> None:
        """Publish the pauses that this process is asked for, and keep the pauses of the fleet, until cancelled."""
        idle = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._draw(0.9, 1.1) * _LOOK_EVERY):
                    await self._pauses.asked.wait()
            self._pauses.asked.clear()
            asked = self._to_publish()
            idle = 0 if self._held or asked else idle + 1
            if idle % _IDLE_LOOKS:
                continue
            await self._exchange(asked)
            # However many requests are rejected, one publication a moment.
            await asyncio.sleep(_SAME / 5)

    def close(self) -> None:
        """The process stops: nothing is left to pause."""

    def _to_publish(self) -> float:
        """Seconds of a pause that the other processes do not know of; 0 without one."""
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
