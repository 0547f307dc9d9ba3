"""Reads new entries of both lanes of all partitions.

While some partitions have a backlog, these are read, a few with each read. Every few milliseconds, and when they are empty, all partitions
are read. A server that responds late keeps the room of its read, and is not read again until it has responded, while the others are. If all
partitions are empty, a read waits for the first entry: with one command if all partitions are on one server that takes such a
command, and otherwise by looking again and again. The pause between two looks grows with the number of processes, so that the looks of all
processes at one partition are about constant.
"""

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ingest.domain.deliveries.delivery import Delivery
from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.consume.partition import Partition, divide
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.consume.reclaiming import MOST_FROM_SCRIPT, PartitionClaims, QueueClaims
from ingest.queue.consume.server_reads import ServerReads
from ingest.queue.consume.settling import PartitionSettling
from ingest.queue.layout.entries import pairs, to_delivery
from ingest.queue.layout.keys import LaneKeys
from ingest.queue.redis.connection import NoGroup, translating

# Entries of one partition that are worth a command.
_WORTH = 50
# Seconds between two looks of all processes at a partition while entries come.
_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
# The pause grows by this factor with each look that finds nothing, to the longest within about ten seconds.
_GROWTH = 1.1
# While both lanes have a backlog, every tenth entry comes from the main lane.
_MAIN_SHARE = 0.1


class QueueReading(QueueClaims):
    """Implements `ingest.flow.ports.Reading`."""

    def __init__(
        self,
        partitions: PartitionSet,
        reads: ServerReads,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        super().__init__(partitions)
        self._uniform = uniform
        self._pause = 0.0
        # When all partitions are read next although some have a backlog.
        self._all_at = 0.0
        self._reads = reads

    @translating
    async def read(self, count: int, block: float) -> list[Delivery]:
        """Read up to `count` new entries, waiting up to `block` seconds for the first. 0 does not wait.

        See `PartitionReading.read`.
        """
        if (only := self._partitions.only) is not None:
            return await only.reading.read(count, block)
        if found := self._reads.take() or await self._read_backlog(count):
            return found
        partitions = self._idle()
        if self._reads.room >= count or not partitions:
            await self._reads.wait(block)
            return self._reads.take()
        may_wait = block > 0 and self._partitions.have_one_owner
        if not may_wait or count < len(partitions):
            found = await self._look(partitions, count)
        if found or not block:
            return found
        if may_wait and not self._reads.room:
            return await self._wait(partitions, count, block)
        return await self._look_until(partitions, count, block)

    async def release_unread(self) -> None:
        """Release the entries of reads that have ended late, because this process is about to leave."""
        await self._reads.wait(_LONGEST_PAUSE)
        for delivery in self._reads.take():
            await self._partitions.of(delivery.entry.stream).settling.release([delivery])

    def _idle(self) -> list[Partition]:
        return self._reads.idle(self._partitions.rotated("read"))

    async def _read_backlog(self, count: int) -> list[Delivery]:
        """Read partitions that have a backlog, or all of them if that is due."""
        partitions = self._idle()
        backlog = [partition for partition in partitions if partition.has_backlog]
        if backlog and asyncio.get_running_loop().time() >= self._all_at:
            return await self._look(partitions, count)
        found: list[Delivery] = []
        while backlog and (room := count - len(found) - self._reads.room) > 0:
            asked = backlog[: max(1, room // _WORTH)]
            found += await self._reads.read(divide(room, asked))
            backlog = [partition for partition in self._reads.idle(backlog) if partition.has_backlog]
        return found

    async def _look(self, partitions: Sequence[Partition], count: int) -> list[Delivery]:
        """Read all partitions once, until some have given entries, and then those that may have more."""
        self._all_at = asyncio.get_running_loop().time() + self._shortest_pause()
        found: list[Delivery] = []
        left = partitions
        while left and (room := count - len(found) - self._reads.room) > 0:
            shares = divide(room, left)
            found += await self._reads.read(shares)
            more = [partition for partition, _ in shares if partition.has_backlog]
            left = self._reads.idle(more if found else left[len(shares) :])
        if found:
            self._pause = 0.0
        return found

    async def _look_until(self, partitions: Sequence[Partition], count: int, seconds: float) -> list[Delivery]:
        """Look again and again for up to `seconds`, after a look that has found nothing."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while True:
            mean = max(self._pause, self._shortest_pause())
            self._pause = min(_LONGEST_PAUSE, _GROWTH * mean)
            pause, left = mean * self._uniform(0.5, 1.5), until - clock()
            if self._reads.room:
                await self._reads.wait(min(pause, left))
                if found := self._reads.take():
                    return found
            else:
                await asyncio.sleep(min(pause, left))
            if pause >= left:
                return []
            if found := await self._look(self._reads.idle(partitions), count):
                return found

    async def _wait(self, partitions: Sequence[Partition], count: int, block: float) -> list[Delivery]:
        """Read entries of all partitions with one command. Entries that exceed the room are released immediately, which is seldom."""
        share = max(1, count // len(partitions))
        streams = [stream for partition in partitions for stream in partition.reading.streams]
        try:
            entries = await self._partitions.all[0].access.waiting.read(streams, share, block)
        except NoGroup:
            for partition in partitions:
                await partition.access.restore_group()
            return []
        found: list[Delivery] = []
        for partition in partitions if entries else ():
            taken = await partition.reading.received(entries, share, count - len(found))
            partition.has_backlog = len(taken) >= share
            found += taken
        return found

    def _shortest_pause(self) -> float:
        return min(_LONGEST_PAUSE, _PAUSE * self._partitions.consumers)


class MainShare:
    """The entries owed to the main lane, so that the express lane does not starve it.

    With few free slots a read is for one or two entries, so the share is kept over reads, not within each.
    """

    def __init__(self) -> None:
        self._owed = 0.0

    def next(self, count: int) -> int:
        """How many of the next `count` entries are the main lane's."""
        self._owed += count * _MAIN_SHARE
        share = min(count, int(self._owed + 1e-9))
        self._owed -= share
        return share


def kept(express: Sequence[Any], main: Sequence[Any], count: int, share: int) -> tuple[int, int]:
    """How many entries of each lane are kept, from the first, if one command has read up to `count` of both."""
    from_express = min(len(express), count - min(share, len(main)))
    return from_express, min(len(main), count - from_express)


class PartitionReading(PartitionClaims):
    """The source of deliveries of one partition.

    One command reads both lanes, up to the count of each, while the express lane is empty, which it nearly always is: then this
    costs as much as reading one. When it was full, a script reads both, by shares, until it is empty.

    Attributes:
        streams: of both lanes, in the order in which they are read.
        express_has_more: whether the express lane may have a backlog.
    """

    def __init__(self, access: GroupAccess, settling: PartitionSettling) -> None:
        super().__init__(access, settling)
        self._main_share = MainShare()
        self.express_has_more = False
        self.streams = [lane.stream for lane in access.lanes]

    @translating
    async def read(self, count: int, block: float) -> list[Delivery]:
        """Read up to `count` new entries, waiting up to `block` seconds for the first. 0 does not wait.

        Entries of the express lane come first. While both lanes have a backlog, about every tenth is from the main lane.

        After `QueueUnavailable`, entries may have been delivered in the reply that was lost: see `claim_own`.
        Do not cancel it, for the same reason.
        """
        taken = await self._read_by_shares(count) if self.express_has_more or not block else []
        if taken or not block:
            return taken
        entries = await self._access.with_group(self._access.waiting.read, self.streams, count, block)
        return await self.received(entries, count, count)

    async def received(self, entries: Mapping[bytes, Any], count: int, room: int) -> list[Delivery]:
        """Return the deliveries of entries by stream, which a command has read for the first time, up to `count` of each lane.

        Entries that exceed the room are released immediately.
        """
        express_lane, main_lane = self._access.lanes
        main = _read(main_lane, entries.get(main_lane.stream.encode(), ()))
        express = await self._ours(_read(express_lane, entries.get(express_lane.stream.encode(), ())))
        self.express_has_more = len(express) >= count
        return await self._within(room, express, await self._ours(main))

    async def _within(self, count: int, express: list[Delivery], main: list[Delivery]) -> list[Delivery]:
        """Of what both lanes gave, as much as there is room for. If the process dies here, the rest is pending under its name."""
        share = self._main_share.next(count) if len(express) + len(main) > count else 0
        from_express, from_main = kept(express, main, count, share)
        excess = express[from_express:] + main[from_main:]
        if excess:
            await self._settling.release(excess)
        return express[:from_express] + main[:from_main]

    async def _read_by_shares(self, count: int) -> list[Delivery]:
        count = min(count, MOST_FROM_SCRIPT)
        share = self._main_share.next(count)
        express, main = await self._access.call_together("read_lanes", self.streams, [count, share])
        self.express_has_more = len(express) >= count - share
        express_lane, main_lane = self._access.lanes
        return await self._ours([*_read(express_lane, express), *_read(main_lane, main)])


def _read(lane: LaneKeys, entries: Sequence[Any]) -> list[Delivery]:
    """The deliveries of entries that were read from a lane for the first time."""
    return [to_delivery(lane.stream, entry_id, pairs(fields), 1) for entry_id, fields in entries]
