"""The source of deliveries of all partitions of a queue.

First, partitions with a backlog are read, with the room divided among them. If there is none, a read waits for the first entry: with one
command if all partitions are on one server that takes such a command, and otherwise by looking again and again. The pause between two looks
grows with the number of processes, so that the looks of all processes at one partition are about constant.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from typing import Any

from ingest.domain.deliveries.delivery import Abandoned, Delivery, EntryRef
from ingest.queue.consume.partitioned.partition_set import Partition, PartitionSet
from ingest.queue.consume.partitioned.settling import PartitionedSettling
from ingest.queue.consume.partitioned.together import Share, take_in_rounds, together
from ingest.queue.consume.waiting_read import WaitingRead
from ingest.queue.redis.connection import NoGroup, translated, translating
from ingest.queue.redis.routed_connection import QueueConnection

# Seconds between two looks of all processes at a partition while entries come.
_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
# The pause grows by this factor with each look that finds nothing, to the longest within about ten seconds.
_GROWTH = 1.1


class PartitionedReading:
    """Implements `ingest.flow.ports.Reading`.

    Args:
        partitions: the partitions that are read.
        settling: releases what exceeds the room.
        waiting: waits for entries of all partitions with one command.
        looking: for reads that do not wait.
        uniform: returns a random number between two others.
    """

    def __init__(
        self,
        partitions: PartitionSet,
        settling: PartitionedSettling,
        waiting: WaitingRead,
        looking: QueueConnection,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._partitions = partitions
        self._settling = settling
        self._waiting = waiting
        self._looking = looking
        self._uniform = uniform
        self._pause = 0.0

    @translating
    async def read(self, count: int, block: float) -> list[Delivery]:
        """Read up to `count` new entries, waiting up to `block` seconds for the first. 0 does not wait.

        After `QueueUnavailable`, entries may have been delivered in the reply that was lost: see `claim_own`.
        Do not cancel it, for the same reason.
        """
        if (only := self._partitions.only) is not None:
            return await only.reading.read(count, block)
        partitions = self._partitions.rotated()
        if any(partition.has_backlog for partition in partitions):
            # A partition without a known backlog is read with those that have one, if there is room for all, and otherwise in turn.
            busy = [
                partition
                for place, partition in enumerate(partitions)
                if partition.has_backlog or place == 0 or count >= len(partitions)
            ]
            if taken := await self._read_in_rounds(busy, count):
                return taken
        if not block:
            return await self._look(partitions, count)
        if self._partitions.have_one_owner:
            return await self._wait(partitions, count, block)
        return await self._look_until(partitions, count, block)

    async def _read_in_rounds(self, partitions: Sequence[Partition], count: int) -> list[Delivery]:
        found: list[Delivery] = []

        async def take(shares: Sequence[Share]) -> list[int]:
            taken = await self._read_shares(shares)
            found.extend(delivery for deliveries in taken for delivery in deliveries)
            return [len(deliveries) for deliveries in taken]

        await take_in_rounds(partitions, count, take)
        return found

    async def _read_shares(self, shares: Sequence[Share]) -> list[list[Delivery]]:
        """Read up to a number of entries of each partition, with one write to each server. Does not wait."""
        calls = [partition.consumer.reading.lanes_call(share) for partition, share in shares]
        with translated():
            replies = await self._looking.run_all(calls)
        return await together(
            self._from_lanes(partition, share, reply) for (partition, share), reply in zip(shares, replies, strict=True)
        )

    async def _from_lanes(self, partition: Partition, share: int, reply: Any) -> list[Delivery]:
        try:
            with translated():
                if isinstance(reply, Exception):
                    raise reply
        except NoGroup:
            await partition.consumer.access.restore_group()
            return []
        taken = await partition.consumer.reading.from_lanes(reply)
        partition.has_backlog = len(taken) >= share
        return taken

    async def _look(self, partitions: Sequence[Partition], count: int) -> list[Delivery]:
        """Read entries of all partitions, and immediately release entries that exceed the room, which is seldom."""
        share = max(1, count // len(partitions))
        taken = await self._read_shares([(partition, share) for partition in partitions])
        found = [delivery for deliveries in taken for delivery in deliveries]
        if found[count:]:
            await self._settling.release(found[count:])
        return found[:count]

    async def _look_until(self, partitions: Sequence[Partition], count: int, seconds: float) -> list[Delivery]:
        """Look again and again for up to `seconds`."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while not (found := await self._look(partitions, count)):
            pause = max(self._pause, min(_LONGEST_PAUSE, _PAUSE * self._partitions.consumers))
            self._pause = min(_LONGEST_PAUSE, _GROWTH * pause)
            pause *= self._uniform(0.5, 1.5)
            left = until - clock()
            await asyncio.sleep(min(pause, left))
            if pause >= left:
                return []
        self._pause = 0.0
        return found

    async def _wait(self, partitions: Sequence[Partition], count: int, block: float) -> list[Delivery]:
        """Read entries of all partitions with one command. Entries that exceed the room are released immediately."""
        share = max(1, count // len(partitions))
        streams = [stream for partition in partitions for stream in partition.consumer.reading.streams]
        try:
            entries = await self._waiting.read(streams, share, block)
        except NoGroup:
            await together(partition.consumer.access.restore_group() for partition in partitions)
            return []
        found: list[Delivery] = []
        for partition in partitions if entries else ():
            taken = await partition.consumer.reading.received(entries, share, count - len(found))
            partition.has_backlog = len(taken) >= share
            found += taken
        return found

    @translating
    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Claim up to `count` entries pending under this name, other than the `known`. See `QueueReading.claim_own`."""
        for partition in self._partitions.rotated():
            if claimed := await partition.consumer.reading.claim_own(count, known, counted=counted):
                return claimed
        return []

    @translating
    async def claim_abandoned(self, count: int) -> Abandoned:
        """Claim up to `count` entries that were released, or are held by consumers whose heartbeat has ended."""
        if (only := self._partitions.only) is not None:
            return await only.reading.claim_abandoned(count)
        found = Abandoned([], [])

        async def take(shares: Sequence[Share]) -> list[int]:
            claimed = await together(partition.consumer.reading.claim_abandoned(share) for partition, share in shares)
            for each in claimed:
                found.released.extend(each.released)
                found.dead.extend(each.dead)
            return [len(each.released) + len(each.dead) for each in claimed]

        await take_in_rounds(self._partitions.rotated(), count, take)
        return found
