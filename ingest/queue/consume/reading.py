"""The source of deliveries: new entries of both lanes of all partitions, and entries that this process or others have left behind.

While some partitions have a backlog, these are read, a few with each read. Every few milliseconds, and when they are empty, all partitions
are read. A server that responds late keeps the room of its read, and is not read again until it has responded, while the others are. If all
partitions are empty, a read waits for the first entry: with one command if all partitions are on one server that takes such a
command, and otherwise by looking again and again. The pause between two looks grows with the number of processes, so that the looks of all
processes at one partition are about constant.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from ingest.domain.deliveries.delivery import Abandoned, Delivery, EntryRef
from ingest.queue.consume.partition import Partition, divide
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.consume.server_reads import ServerReads
from ingest.queue.consume.waiting_read import WaitingRead
from ingest.queue.redis.connection import NoGroup, translating

# Entries of one partition that are worth a command.
_WORTH = 50
# Seconds between two looks of all processes at a partition while entries come.
_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
# The pause grows by this factor with each look that finds nothing, to the longest within about ten seconds.
_GROWTH = 1.1
# Seconds for which claims wait for slow servers while others have responded.
_WAIT_OF_CLAIMS = 0.25


class QueueReading:
    """Implements `ingest.flow.ports.Reading`. If one command may name all partitions, `waiting` waits for their entries."""

    def __init__(
        self,
        partitions: PartitionSet,
        waiting: WaitingRead,
        reads: ServerReads,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._partitions = partitions
        self._waiting = waiting
        self._uniform = uniform
        self._pause = 0.0
        # When all partitions are read next although some have a backlog.
        self._all_at = 0.0
        self._reads = reads

    @property
    def may_own_more(self) -> bool:
        """Whether entries of lost replies may be pending in one of several partitions."""
        partitions = self._partitions
        return not partitions.have_one_owner and any(each.may_own_more for each in partitions.ready("own"))

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
            entries = await self._waiting.read(streams, share, block)
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

    @translating
    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Claim up to `count` entries pending under this name, other than the `known`. See `PartitionReading.claim_own`."""
        ready = self._partitions.rotated("own")
        # At one server, the error of the call reports that a reply was lost.
        unsure = ready if self._partitions.have_one_owner else [each for each in ready if each.may_own_more]
        while unsure:
            shares = dict(divide(count, unsure))
            unsure = unsure[len(shares) :]
            claim = partial(self._claim_own_share, shares, known, counted=counted)
            claimed = await self._partitions.each("own", claim, shares, _WAIT_OF_CLAIMS)
            if found := [delivery for deliveries in claimed.values() for delivery in deliveries]:
                return found
        return []

    async def _claim_own_share(
        self, shares: Mapping[Partition, int], known: Collection[EntryRef], partition: Partition, *, counted: bool
    ) -> list[Delivery]:
        # Before the call, because a reply that is lost during it sets this again.
        partition.may_own_more = False
        own = await partition.reading.claim_own(shares[partition], known, counted=counted)
        partition.may_own_more |= bool(own)
        return own

    @translating
    async def claim_abandoned(self, count: int) -> Abandoned:
        """Claim up to `count` entries that were released, or are held by consumers whose heartbeat has ended."""
        found = Abandoned([], [])
        waiting = list(self._partitions.rotated("claim"))
        while waiting and (room := count - len(found.released) - len(found.dead)) > 0:
            shares = dict(divide(room, waiting))
            claim = partial(self._claim_share, shares)
            claimed = await self._partitions.each("claim", claim, shares, _WAIT_OF_CLAIMS)
            waiting = waiting[len(shares) :]
            for partition, each in claimed.items():
                found.released.extend(each.released)
                found.dead.extend(each.dead)
                if len(each.released) + len(each.dead) >= shares[partition]:
                    waiting.append(partition)
        return found

    async def _claim_share(self, shares: Mapping[Partition, int], partition: Partition) -> Abandoned:
        return await partition.reading.claim_abandoned(shares[partition])
