"""The source of deliveries of all partitions of a queue.

While some partitions have a backlog, these are read, a few with each read. Every few milliseconds, and when they are empty, all partitions
are read. If all are empty, a read waits for the first entry: with one command if all partitions are on one server that takes such a
command, and otherwise by looking again and again. The pause between two looks grows with the number of processes, so that the looks of all
processes at one partition are about constant.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any

from ingest.domain.deliveries.delivery import Abandoned, Delivery, EntryRef
from ingest.domain.errors import QueueUnavailable
from ingest.queue.consume.idle_reads import by_stream
from ingest.queue.consume.partitioned.partition_set import Partition, PartitionSet
from ingest.queue.consume.partitioned.together import Share, divide, take_in_rounds, together
from ingest.queue.consume.waiting_read import WaitingRead, read_command
from ingest.queue.redis.connection import NoGroup, translated, translating
from ingest.queue.redis.routed_connection import QueueConnection

# Entries of one partition that are worth a command.
_WORTH = 50
# Seconds between two looks of all processes at a partition while entries come.
_PAUSE = 0.02
_LONGEST_PAUSE = 1.0
# The pause grows by this factor with each look that finds nothing, to the longest within about ten seconds.
_GROWTH = 1.1


class PartitionedReading:
    """Implements `ingest.flow.ports.Reading`.

    Args:
        partitions: the partitions that are read.
        waiting: waits for entries of all partitions with one command.
        looking: for reads that do not wait.
        group: the consumer group.
        name: the consumer.
        uniform: returns a random number between two others.
    """

    def __init__(
        self,
        partitions: PartitionSet,
        waiting: WaitingRead,
        looking: QueueConnection,
        group: str,
        name: str,
        *,
        uniform: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._partitions = partitions
        self._waiting = waiting
        self._looking = looking
        self._group = group
        self._name = name
        self._uniform = uniform
        self._pause = 0.0
        # When all partitions are read next although some have a backlog.
        self._all_at = 0.0

    @translating
    async def read(self, count: int, block: float) -> list[Delivery]:
        """Read up to `count` new entries, waiting up to `block` seconds for the first. 0 does not wait.

        After `QueueUnavailable`, entries may have been delivered in the reply that was lost: see `claim_own`.
        Do not cancel it, for the same reason.
        """
        if (only := self._partitions.only) is not None:
            return await only.reading.read(count, block)
        if self._partitions.has_returned:
            # The caller claims the entries of lost replies, and entries that were not acked in the meantime.
            self._partitions.has_returned = False
            raise QueueUnavailable("a partition is available again; its unfinished entries are claimed first")
        partitions = self._partitions.rotated()
        found = await self._read_backlog(partitions, count)
        if found:
            return found
        may_wait = block > 0 and self._partitions.have_one_owner
        if not may_wait or count < len(partitions):
            found = await self._look(partitions, count)
        if found or not block:
            return found
        return await (self._wait(partitions, count, block) if may_wait else self._look_until(partitions, count, block))

    async def _read_backlog(self, partitions: Sequence[Partition], count: int) -> list[Delivery]:
        """Read partitions that have a backlog, or all of them if that is due."""
        backlog = [partition for partition in partitions if partition.has_backlog]
        if backlog and asyncio.get_running_loop().time() >= self._all_at:
            return await self._look(partitions, count)
        found: list[Delivery] = []
        while backlog and len(found) < count:
            room = count - len(found)
            asked = backlog[: max(1, room // _WORTH)]
            taken = await self._read_shares(divide(room, asked))
            found += [delivery for deliveries in taken for delivery in deliveries]
            backlog = [partition for partition in backlog if partition.has_backlog]
        return found

    async def _look(self, partitions: Sequence[Partition], count: int) -> list[Delivery]:
        """Read all partitions once, until some have given entries, and then those that may have more."""
        self._all_at = asyncio.get_running_loop().time() + self._shortest_pause()
        found: list[Delivery] = []
        left = partitions
        while left and len(found) < count:
            shares = divide(count - len(found), left)
            taken = await self._read_shares(shares)
            found += [delivery for deliveries in taken for delivery in deliveries]
            more = [partition for partition, _ in shares if partition.has_backlog]
            left = more if found else left[len(shares) :]
        if found:
            self._pause = 0.0
        return found

    async def _read_shares(self, shares: Sequence[Share]) -> list[list[Delivery]]:
        """Read up to a number of entries of each partition, with one write to each server. Does not wait."""
        commands = [
            read_command(self._group, self._name, partition.consumer.reading.streams, share)
            for partition, share in shares
            if not partition.consumer.reading.express_has_more
        ]
        with translated():
            replies = iter(await self._looking.call_all(commands) if commands else ())
        return await together(
            [
                self._partitions.attempt(partition, self._by_lanes, partition, share)
                if partition.consumer.reading.express_has_more
                else self._partitions.attempt(partition, self._received, partition, share, next(replies))
                for partition, share in shares
            ]
        )

    async def _by_lanes(self, partition: Partition, share: int) -> list[Delivery]:
        taken = await partition.consumer.reading.read(share, 0.0)
        partition.has_backlog = len(taken) >= share
        return taken

    async def _received(self, partition: Partition, share: int, reply: Any) -> list[Delivery]:
        try:
            with translated():
                if isinstance(reply, Exception):
                    raise reply
        except NoGroup:
            partition.has_backlog = False
            await partition.consumer.access.restore_group()
            return []
        taken = await partition.consumer.reading.received(by_stream(reply), share, share)
        partition.has_backlog = len(taken) >= share
        return taken

    async def _look_until(self, partitions: Sequence[Partition], count: int, seconds: float) -> list[Delivery]:
        """Look again and again for up to `seconds`, after a look that has found nothing."""
        clock = asyncio.get_running_loop().time
        until = clock() + seconds
        while True:
            mean = max(self._pause, self._shortest_pause())
            self._pause = min(_LONGEST_PAUSE, _GROWTH * mean)
            pause, left = mean * self._uniform(0.5, 1.5), until - clock()
            await asyncio.sleep(min(pause, left))
            if pause >= left:
                return []
            if found := await self._look(partitions, count):
                return found

    async def _wait(self, partitions: Sequence[Partition], count: int, block: float) -> list[Delivery]:
        """Read entries of all partitions with one command. Entries that exceed the room are released immediately, which is seldom."""
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

    def _shortest_pause(self) -> float:
        return min(_LONGEST_PAUSE, _PAUSE * self._partitions.consumers)

    @translating
    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Claim up to `count` entries pending under this name, other than the `known`. See `QueueReading.claim_own`."""
        for partition in self._partitions.rotated():
            claiming = partial(partition.consumer.reading.claim_own, count, known, counted=counted)
            if claimed := await self._partitions.attempt(partition, claiming):
                return claimed
        return []

    @translating
    async def claim_abandoned(self, count: int) -> Abandoned:
        """Claim up to `count` entries that were released, or are held by consumers whose heartbeat has ended."""
        if (only := self._partitions.only) is not None:
            return await only.reading.claim_abandoned(count)
        found = Abandoned([], [])

        async def take(shares: Sequence[Share]) -> list[int]:
            claimed = await together(
                self._partitions.attempt(partition, partition.consumer.reading.claim_abandoned, share)
                for partition, share in shares
            )
            for each in claimed:
                found.released.extend(each.released)
                found.dead.extend(each.dead)
            return [len(each.released) + len(each.dead) for each in claimed]

        await take_in_rounds(self._partitions.rotated(), count, take)
        return found
