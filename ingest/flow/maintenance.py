"""What one process of a consumer group does for all of them: retries that are due, the sweep, deleting and removing.

The process whose heartbeat found that nobody leads does it, until it stops or is no longer heard; see `heartbeat.lua`. Each step
is one atomic move in Redis that may be made by several at once, so it does no harm if two processes lead for a moment, or if
one dies in between. What others hold is found by all processes, see `ingest.flow.reaper`.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable

from ingest.flow.lease import Leases
from ingest.flow.patience import until_available
from ingest.flow.ports import GroupMaintenance
from ingest.telemetry.logs import get_logger

_log = get_logger("maintenance")
# Each step takes Redis a millisecond or two. Between two of them it answers others, for at least so many times as long: the slower
# it is, the longer they are left their turn.
_PAUSE = 0.005
_PAUSE_SHARE = 3.0
_DUE_EVERY = 1.0
_DUE_AT_ONCE = 100
_TRIM_EVERY = 5.0
_TRIM_AT_ONCE = 100
# Nothing waits for the sweep: a page of it costs as much as any other step, and it goes through all that is in flight.
_SWEEP_PAUSE = 0.02
_REMOVE_EVERY = 60.0
# A consumer asks at least every two seconds while it lives; one that was silent so long, and holds nothing, is gone.
_SILENT_FOR = 300.0


class Maintenance:
    """The maintenance of one group, done while this process leads.

    Args:
        group: what is maintained.
        leases: whether this process leads.
        idle: seconds after which an entry that nobody has renewed is released.
        draw: a uniform random number between its arguments.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        group: GroupMaintenance,
        leases: Leases,
        idle: float,
        *,
        draw: Callable[[float, float], float] = random.uniform,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._leases = leases
        self._idle = idle
        self._draw = draw
        self._clock = clock

    async def run(self) -> None:
        """Do all of it, each part at its own pace, until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._repeat(self._return_due, _DUE_EVERY))
            parts.create_task(self._repeat(self._sweep, self._idle / 3, _SWEEP_PAUSE))
            parts.create_task(self._repeat(self._trim, _TRIM_EVERY))
            parts.create_task(self._repeat(self._remove_stale, _REMOVE_EVERY))

    async def _repeat(self, part: Callable[[], Awaitable[bool]], every: float, pause: float = _PAUSE) -> None:
        """Call a part while it has more to do, with pauses; else again after `every` seconds, with jitter."""
        while True:
            began = self._clock()
            is_done = not self._leases.leads() or await until_available("redis", part)
            if is_done:
                await asyncio.sleep(self._draw(0.75 * every, 1.25 * every))
            else:
                await asyncio.sleep(min(every, max(pause, _PAUSE_SHARE * (self._clock() - began))))

    async def _return_due(self) -> bool:
        return await self._group.move_due(_DUE_AT_ONCE) < _DUE_AT_ONCE

    async def _sweep(self) -> bool:
        found = await self._group.sweep(self._idle)
        if found.restored:
            # Somebody has removed consumers, or acked, by hand.
            _log.warning("entries_restored", entries=found.restored, cause="no longer pending, and never acked")
        if found.released:
            _log.info("idle_entries_released", entries=found.released)
        return found.is_complete

    async def _trim(self) -> bool:
        deleted = await self._group.trim(_TRIM_AT_ONCE)
        if deleted:
            _log.debug("entries_deleted", entries=deleted)
        return deleted < _TRIM_AT_ONCE

    async def _remove_stale(self) -> bool:
        removed = await self._group.remove_stale(_SILENT_FOR)
        if removed:
            _log.info("consumers_removed", consumers=removed)
        return True
