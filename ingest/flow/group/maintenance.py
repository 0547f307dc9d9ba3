"""Maintains a consumer group in one of its processes: due retries, the sweep, deletion of finished entries and of stale consumers.

The first process whose heartbeat finds no leader leads until it stops or its heartbeats end, see `heartbeat.lua`. Each step is one
atomic move in Redis, so that two leaders, or a leader that dies between steps, do no harm. Entries of dead consumers are reclaimed by
all processes, see `ingest.flow.read.reclaim`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from ingest.flow.availability import until_available
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.ports import Maintenance as Group
from ingest.flow.ticks import sleep_to_tick
from ingest.telemetry.logs import get_logger

_log = get_logger("maintenance")
# Each step occupies Redis for a millisecond or two. The pause between two steps is at least this many times as long.
_PAUSE = 0.005
_PAUSE_SHARE = 3.0
_DUE_EVERY = 1.25
_DUE_AT_ONCE = 100
_TRIM_EVERY = 30.0
_TRIM_AT_ONCE = 100
# The sweep goes through all entries in flight, page by page, and is not urgent.
_SWEEP_PAUSE = 0.02
_REMOVE_EVERY = 60.0
# Seconds without a request after which a consumer without entries is removed. A live one sends a request every two seconds.
_STALE_AFTER = 300.0


class GroupMaintenance:
    """The maintenance of one group, done while this process leads.

    Args:
        idle: seconds without renewal after which an entry is released.
    """

    def __init__(
        self,
        group: Group,
        heartbeats: Heartbeats,
        idle: float,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._group = group
        self._heartbeats = heartbeats
        self._idle = idle
        self._clock = clock

    async def run(self) -> None:
        """Repeat each part at its own pace until cancelled."""
        async with asyncio.TaskGroup() as parts:
            parts.create_task(self._repeat(self._return_due, _DUE_EVERY))
            parts.create_task(self._repeat(self._sweep, self._idle / 3, _SWEEP_PAUSE))
            parts.create_task(self._repeat(self._trim, _TRIM_EVERY))
            parts.create_task(self._repeat(self._remove_stale, _REMOVE_EVERY))

    async def _repeat(self, part: Callable[[], Awaitable[bool]], every: float, pause: float = _PAUSE) -> None:
        """Call a part while it has more to do, with pauses, and otherwise about `every` seconds apart."""
        while True:
            began = self._clock()
            is_done = not self._heartbeats.leads() or await until_available("redis", part)
            if is_done:
                await sleep_to_tick(every)
            else:
                await asyncio.sleep(min(every, max(pause, _PAUSE_SHARE * (self._clock() - began))))

    async def _return_due(self) -> bool:
        return await self._group.move_due(_DUE_AT_ONCE) < _DUE_AT_ONCE

    async def _sweep(self) -> bool:
        found = await self._group.sweep(self._idle)
        if found.restored:
            # An operator has removed consumers, or acked entries, by hand.
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
        removed = await self._group.remove_stale(_STALE_AFTER)
        if removed:
            _log.info("consumers_removed", consumers=removed)
        return True
