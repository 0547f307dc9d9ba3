"""How a process shows that it is alive, keeps its deliveries, reports why it does not work and by which files, and leaves.

The report travels with the heartbeats, to a key of the process in each partition. The key expires with the heartbeat, so that a process
that dies leaves nothing behind.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec

from ingest.domain.deliveries.clock_bounds import ClockBounds, unknown_time
from ingest.domain.deliveries.delivery import EntryRef, Heartbeat
from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.operating.source_state import NO_REPORT, ProcessReport
from ingest.queue.consume.group_access import MOST_IDS, GroupAccess
from ingest.queue.consume.partition import Partition
from ingest.queue.consume.partition_set import WAIT, PartitionSet
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import translating

_Report = TypeVar("_Report")
# Clocks of machines that continue steadily differ by less.
_JUMP_MS = 2000


class QueueLiveness:
    """Implements `ingest.flow.ports.Liveness`.

    A call fails if it fails in all partitions. Those of a slow server continue while the calls to others are made again.
    `release_unread` releases entries that were read and not returned.
    """

    def __init__(self, partitions: PartitionSet, release_unread: Callable[[], Awaitable[None]]) -> None:
        self._partitions = partitions
        self._release_unread = release_unread

    async def heartbeat(
        self, lifetime: float, clock: ClockBounds = unknown_time, report: ProcessReport = NO_REPORT
    ) -> Heartbeat:
        """Report in each partition that this consumer is alive. The time is the time of the first one, for all processes."""
        partitions, now = self._partitions, asyncio.get_running_loop().time
        began_at = now()

        async def send(partition: Partition) -> tuple[float, Heartbeat]:
            sent_at = now()
            heartbeat = await partition.liveness.heartbeat(lifetime, clock, report)
            partition.leads = heartbeat.leads
            return sent_at, heartbeat

        heartbeats: list[Heartbeat] = []
        is_first = False
        while not heartbeats:  # each server is late
            found = await partitions.each("heartbeat", send, wait=min(WAIT, lifetime / 6))
            is_first |= any(heartbeat.is_first for _, heartbeat in found.values())
            # The time in the reply to an earlier heartbeat is out of date.
            heartbeats = [heartbeat for sent_at, heartbeat in found.values() if sent_at >= began_at]
        partitions.consumers = max(1, *(each.consumers for each in heartbeats))
        if partitions.only is not None and heartbeats[0].generation != partitions.generation:
            # The recorded generation may even be an earlier one, because a failover may have lost the record, which is then written again.
            partitions.changed.set()
        return Heartbeat(
            heartbeats[0].now,
            is_first=is_first,
            leads=any(each.leads for each in partitions.all),
            consumers=partitions.consumers,
        )

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """See `PartitionLiveness.renew`. Entries of partitions that are unavailable or slow count as held."""
        lost = await self._partitions.send("renew", entries, lambda to, own: to.liveness.renew(own))
        return set().union(*lost)

    async def report_troubles(self, troubles: Sequence[PartitionTrouble], lifetime: float) -> None:
        """Report for `lifetime` seconds, in each partition, the troubles of some of them."""
        await self._partitions.each("troubles", lambda each: each.liveness.report_troubles(troubles, lifetime))

    async def leave(self) -> int:
        """Leave the group of each partition, and return how many entries this consumer has not released."""
        await self._release_unread()
        return sum((await self._partitions.each("leave", lambda each: each.liveness.leave())).values())


class PartitionLiveness:
    """The liveness of the consumer of `access` in one partition."""

    def __init__(self, access: GroupAccess) -> None:
        self._access = access
        # A predecessor with the same name may have reported reasons.
        self._has_reported = True

    @translating
    async def heartbeat(
        self, lifetime: float, clock: ClockBounds = unknown_time, report: ProcessReport = NO_REPORT
    ) -> Heartbeat:
        """Report that this consumer is alive, with the report of its process. For `lifetime` seconds from now it does not count as dead."""
        is_empty = report == NO_REPORT
        encoded = b"" if is_empty and not self._has_reported else msgspec.json.encode(report)
        reply = await self._send(lifetime, clock, "", "", encoded)
        self._has_reported = not is_empty
        bounds = clock()
        # The server has read its time after the call, so a delay cannot make it later than now.
        if bounds is not None and (jump := reply[0] - math.ceil(bounds[1] * 1000)) > _JUMP_MS:
            reply = await self._send(lifetime, clock, jump, reply[-1], b"")
        milliseconds, is_first, leads, consumers, generation, _ = reply
        return Heartbeat(milliseconds / 1000, bool(is_first), bool(leads), consumers, generation)

    async def _send(
        self, lifetime: float, clock: ClockBounds, jump: int | str, state: bytes | str, report: bytes
    ) -> Any:
        keys, bounds = self._access.keys, clock()
        assumed = ("", "") if bounds is None else (math.floor(bounds[0] * 1000), math.ceil(bounds[1] * 1000))
        names = [keys.alive, keys.standing, keys.clock, keys.maintenance, report_key(keys, self._access.name)]
        values = [int(lifetime * 1000), *assumed, jump, state, report]
        return await self._access.call_together("heartbeat", names, values)

    @translating
    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """Renew the lease of held entries, and return the entries that this consumer has lost."""
        lost: set[EntryRef] = set()
        for lane, own in self._access.by_lane(entries):
            ids = [each.id for each in own]
            for start in range(0, len(ids), MOST_IDS):
                reply = await self._access.call("renew", [lane.stream], ids[start : start + MOST_IDS])
                lost.update(EntryRef(lane.stream, entry_id.decode()) for entry_id in reply)
        return lost

    @translating
    async def report_troubles(self, troubles: Sequence[PartitionTrouble], lifetime: float) -> None:
        """Report for `lifetime` seconds the troubles of partitions."""
        await self._access.control.set(
            self._access.keys.troubles, msgspec.json.encode(troubles), px=int(lifetime * 1000)
        )

    @translating
    async def leave(self) -> int:
        """Remove this consumer from the group unless entries are pending under its name, and return how many it has not released.

        Others may claim these immediately.
        """
        keys = self._access.keys
        names = [keys.alive, keys.standing, keys.maintenance, *(lane.stream for lane in self._access.lanes)]
        return int(await self._access.call("leave", names))


def report_key(keys: Keys, consumer: str) -> str:
    """The key of the report of one consumer."""
    return keys.circuit + consumer


def read_report(raw: bytes | None) -> ProcessReport:
    """The report of a consumer, or an empty one if there is none that can be read."""
    return _decoded(raw, ProcessReport) or NO_REPORT


def read_troubles(raw: bytes | str | None) -> list[PartitionTrouble]:
    """The troubles of a report, or none if there is no report that can be read."""
    return _decoded(raw, list[PartitionTrouble]) or []


def _decoded(raw: bytes | str | None, form: type[_Report]) -> _Report | None:
    try:
        return msgspec.json.decode(raw, type=form) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
