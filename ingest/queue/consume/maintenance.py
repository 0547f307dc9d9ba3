"""The maintenance of the partitions that this process leads, for their whole group. Several processes may do it concurrently."""

from collections.abc import Awaitable, Callable
from typing import Any

from ingest.domain.deliveries.dead_letter import StoredSince
from ingest.domain.deliveries.delivery import DeadReason, Sweep
from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.consume.partition import Kind, Partition, divide
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.layout.keys import LaneKeys
from ingest.queue.operate.failed.dead_letter_pages import DeadLetterPages
from ingest.queue.redis.connection import translating

_PAGE = 100


class QueueMaintenance:
    """Implements `ingest.flow.ports.Maintenance`."""

    def __init__(self, partitions: PartitionSet) -> None:
        self._partitions = partitions
        # Partitions whose sweep is not complete.
        self._sweeping: list[Partition] = []

    async def sweep(self, idle: float) -> Sweep:
        """Examine one page of each partition whose sweep is not complete. See `PartitionMaintenance.sweep`."""
        leading = self._leading("sweep")
        sweeping = [partition for partition in self._sweeping if partition in leading] or leading
        pages = await self._partitions.each("sweep", lambda each: each.maintenance.sweep(idle), sweeping)
        self._sweeping = [partition for partition, page in pages.items() if not page.is_complete]
        released = sum(page.released for page in pages.values())
        return Sweep(not self._sweeping, released, sum(page.restored for page in pages.values()))

    async def move_due(self, most: int) -> int:
        """Move up to `most` due entries, and return how many, or `most` if a partition may have more."""
        return await self._in_shares("due", most, lambda each, share: each.maintenance.move_due(share))

    async def trim(self, most: int) -> int:
        """Delete up to `most` finished entries, and return how many, or `most` if a partition may have more."""
        return await self._in_shares("trim", most, lambda each, share: each.maintenance.trim(share))

    async def remove_stale(self, idle: float) -> int:
        """See `PartitionMaintenance.remove_stale`."""
        return await self._in_total("stale", lambda each: each.maintenance.remove_stale(idle))

    async def settle_not_found(self, stored: StoredSince) -> int:
        """See `PartitionMaintenance.settle_not_found`."""
        return await self._in_total("settle", lambda each: each.maintenance.settle_not_found(stored))

    async def _in_total(self, kind: Kind, call: Callable[[Partition], Awaitable[int]]) -> int:
        return sum((await self._partitions.each(kind, call, self._leading(kind))).values())

    async def _in_shares(self, kind: Kind, most: int, call: Callable[[Partition, int], Awaitable[int]]) -> int:
        shares = dict(divide(most, self._leading(kind)))
        done = await self._partitions.each(kind, lambda each: call(each, shares[each]), shares)
        if any(count >= shares[partition] for partition, count in done.items()):
            return most
        return sum(done.values())

    def _leading(self, kind: Kind) -> list[Partition]:
        return [partition for partition in self._partitions.rotated(kind) if partition.leads]


class PartitionMaintenance:
    """The maintenance of one partition by the consumer of `access`."""

    def __init__(self, access: GroupAccess) -> None:
        self._access = access
        self._dead_letters = DeadLetterPages(access.control, access.keys)
        self._settle = access.script("settle_not_found")
        # The rest of the dead letters, from the newest on. None to begin again.
        self._dead_before: str | None = None

    @translating
    async def sweep(self, idle: float) -> Sweep:
        """Examine one page of the group's entries in flight, and release entries that were not renewed for `idle` seconds.

        Entries that have left the pending list without an ack are put back. The next call, of any consumer, continues there: through
        the express lane first, then the main lane. While this consumer's own heartbeat has not been kept for a lifetime,
        no held entry is released.
        """
        keys = self._access.keys
        names = [keys.alive, keys.standing, keys.clock, keys.maintenance]
        for lane in self._access.lanes:
            names += [lane.stream, lane.released, lane.settled]
        is_complete, released, restored = await self._access.call_together("sweep", names, [int(idle * 1000), _PAGE])
        return Sweep(bool(is_complete), released, len(restored))

    @translating
    async def move_due(self, most: int) -> int:
        """Move up to `most` scheduled entries that are due to the express lane, and return how many."""
        keys = self._access.keys
        names = [keys.express, keys.retry, keys.retry_entries, keys.clock, keys.dead, keys.retry_announced]
        names += [keys.stream, keys.erased]
        moved, has_more = 0, 1
        while has_more and moved < most:
            count, has_more = await self._access.call_together("move_due", names, [most - moved])
            moved += count
        return int(moved)

    @translating
    async def trim(self, most: int) -> int:
        """Delete up to `most` entries that every group has finished but could not delete, and return how many."""
        has_settled, _, _ = await self._chores()
        deleted = 0
        for lane in self._access.lanes if has_settled else ():
            deleted += await self._trim_lane(lane, most - deleted) if deleted < most else 0
        return deleted

    async def _trim_lane(self, lane: LaneKeys, most: int) -> int:
        access = self._access
        own = access.group.encode()
        groups = await access.with_group(access.control.xinfo_groups, lane.stream)
        others: list[bytes] = [group["name"] for group in groups if group["name"] != own]
        keys: list[Any] = [lane.stream, lane.settled]
        for other in others:
            keys += [key.removesuffix(access.group).encode() + other for key in (lane.settled, access.keys.maintenance)]
        # -1 if another group has come in between: next time.
        return max(0, int(await access.call("trim", keys, [most, *others])))

    @translating
    async def remove_stale(self, idle: float) -> int:
        """Remove consumers without a heartbeat or entries that were idle for `idle` seconds, and return how many."""
        _, has_stale, _ = await self._chores()
        if not has_stale:
            return 0
        stale = await self._idle_consumers(idle)
        keys = [self._access.keys.alive, *(lane.stream for lane in self._access.lanes)]
        removed = 0
        for start in range(0, len(stale), _PAGE):
            removed += int(await self._access.call("remove_consumers", keys, stale[start : start + _PAGE]))
        return removed

    @translating
    async def settle_not_found(self, stored: StoredSince) -> int:
        """See the port. Each call examines the newest dead letters, and a page of the others."""
        keys, pages = self._access.keys, self._dead_letters
        *_, has_dead = await self._chores()
        if not has_dead:
            return 0
        newest, after = await pages.one_page("XREVRANGE", "+", "-", _PAGE)
        older, self._dead_before = (
            ((), after)
            if self._dead_before is None
            else await pages.one_page("XREVRANGE", self._dead_before, "-", _PAGE)
        )
        found = {each.entry_id: each for each, _ in (*newest, *older) if each.reason == DeadReason.NOT_FOUND}
        # The latest time of each order counts.
        seen = sorted((each.last_seen_at or each.dead_at, each.order_id) for each in found.values() if each.order_id)
        settled = await stored({order_id: at for at, order_id in seen}) if seen else ()
        ours = [part for each in found.values() if each.order_id in settled for part in (each.entry_id, each.seen)]
        return int(await self._settle([keys.dead, keys.dead_seen], ours)) if ours else 0

    async def _chores(self) -> tuple[bool, bool, bool]:
        """Whether entries may have to be trimmed, consumers removed, and dead letters settled. Many sources check in one command."""
        keys = [self._access.keys.alive, self._access.keys.dead]
        for lane in self._access.lanes:
            keys += [lane.stream, lane.settled]
        has_settled, has_stale, has_dead = await self._access.call_together("chores", keys)
        return bool(has_settled), bool(has_stale), bool(has_dead)

    async def _idle_consumers(self, idle: float) -> list[bytes]:
        """Consumers with nothing pending that have not read for `idle` seconds, in any lane."""
        names: set[bytes] = set()
        busy = {self._access.name.encode()}
        for lane in self._access.lanes:
            access = self._access
            rows = await access.with_group(access.control.xinfo_consumers, lane.stream, access.group)
            names.update(row["name"] for row in rows)
            busy.update(row["name"] for row in rows if row["pending"] or row["idle"] <= idle * 1000)
        return sorted(names - busy)
