"""The maintenance that one consumer does for the whole group. Several may do it concurrently."""

from typing import Any

from ingest.domain.deliveries.delivery import Sweep
from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.layout.keys import LaneKeys
from ingest.queue.redis.connection import NoGroup, translated, translating

_MOST_CONSUMERS = 100
_SWEEP_PAGE = 100


class QueueMaintenance:
    """Implements `ingest.flow.ports.Maintenance` for the consumer of `access`."""

    def __init__(self, access: GroupAccess) -> None:
        self._access = access

    @translating
    async def sweep(self, idle: float) -> Sweep:
        """Examine one page of the group's entries in flight, and release entries that were not renewed for `idle` seconds.

        What has left the pending list without an ack is put back. The next call, of whatever consumer, goes on there: through
        the express lane first, then the main one. While this consumer's own heartbeat has not been kept for a lifetime,
        no held entry is released.
        """
        is_complete, released, restored = await self._sweep_page(idle, _SWEEP_PAGE)
        return Sweep(bool(is_complete), released, len(restored))

    async def _sweep_page(self, idle: float, page: int) -> Any:
        keys = [
            self._access.keys.alive,
            self._access.keys.standing,
            self._access.keys.clock,
            self._access.keys.maintenance,
        ]
        for lane in self._access.lanes:
            keys += [lane.stream, lane.released, lane.settled]
        return await self._access.call("sweep", keys, [self._access.group, self._access.name, int(idle * 1000), page])

    @translating
    async def move_due(self, most: int) -> int:
        """Move up to `most` scheduled entries that are due to the express lane, and return how many."""
        keys = [
            self._access.keys.express,
            self._access.keys.retry,
            self._access.keys.retry_entries,
            self._access.keys.clock,
            self._access.keys.dead,
        ]
        keys += [self._access.keys.retry_announced, self._access.keys.stream, self._access.keys.erased]
        moved, has_more = 0, 1
        while has_more and moved < most:
            with translated():
                count, has_more = await self._access.script("move_due")(keys, [self._access.group, most - moved])
            moved += count
        return int(moved)

    @translating
    async def trim(self, most: int) -> int:
        """Delete up to `most` entries that every group has finished but could not delete, and return how many."""
        deleted = 0
        try:
            for lane in self._access.lanes:
                deleted += await self._trim_lane(lane, most - deleted) if deleted < most else 0
        except NoGroup:
            await self._access.restore_group()
        return deleted

    async def _trim_lane(self, lane: LaneKeys, most: int) -> int:
        own = self._access.group.encode()
        with translated():
            groups = await self._access.control.xinfo_groups(lane.stream)
        others: list[bytes] = [group["name"] for group in groups if group["name"] != own]
        keys: list[Any] = [lane.stream, lane.settled]
        for other in others:
            keys += [
                key.removesuffix(self._access.group).encode() + other
                for key in (lane.settled, self._access.keys.maintenance)
            ]
        # -1 if another group has come in between: next time.
        return max(0, int(await self._access.call("trim", keys, [self._access.group, most, *others])))

    @translating
    async def remove_stale(self, idle: float) -> int:
        """Remove consumers without a heartbeat or entries that were idle for `idle` seconds, and return how many."""
        try:
            stale = await self._idle_consumers(idle)
        except NoGroup:
            await self._access.restore_group()
            return 0
        keys = [self._access.keys.alive, *(lane.stream for lane in self._access.lanes)]
        removed = 0
        for start in range(0, len(stale), _MOST_CONSUMERS):
            arguments = [self._access.group, *stale[start : start + _MOST_CONSUMERS]]
            removed += int(await self._access.call("remove_consumers", keys, arguments))
        return removed

    async def _idle_consumers(self, idle: float) -> list[bytes]:
        """Who has neither anything pending in any lane nor read from any for `idle` seconds."""
        names: set[bytes] = set()
        busy = {self._access.name.encode()}
        for lane in self._access.lanes:
            with translated():
                rows = await self._access.control.xinfo_consumers(lane.stream, self._access.group)
            names.update(row["name"] for row in rows)
            busy.update(row["name"] for row in rows if row["pending"] or row["idle"] <= idle * 1000)
        return sorted(names - busy)
