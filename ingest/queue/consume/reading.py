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
from typing import Any

from ingest.domain.deliveries.delivery import Abandoned, Delivery, EntryRef
from ingest.domain.deliveries.entry_fields import GROUP
from ingest.queue.consume.group_access import MOST_IDS, GroupAccess, deliveries_of
from ingest.queue.consume.partition import Partition, divide
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.consume.server_reads import ServerReads
from ingest.queue.consume.settling import PartitionSettling
from ingest.queue.consume.waiting_read import WaitingRead
from ingest.queue.layout.entries import pairs, to_delivery
from ingest.queue.layout.keys import LaneKeys
from ingest.queue.redis.connection import NoGroup, translated, translating

# Entries that one script returns with their content, few enough that Redis responds to others within milliseconds.
_MOST_FROM_SCRIPT = 100
_MOST_DEAD = 20
# While both lanes have a backlog, every tenth entry comes from the main lane.
_MAIN_SHARE = 0.1
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
    """Implements `ingest.flow.ports.Reading`.

    Args:
        partitions: the partitions that are read.
        waiting: waits for entries of all partitions with one command.
        reads: reads at each server, which do not wait for entries.
        uniform: returns a random number between two others.
    """

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

        After `QueueUnavailable`, entries may have been delivered in the reply that was lost: see `claim_own`.
        Do not cancel it, for the same reason.
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


class PartitionReading:
    """The source of deliveries of one partition.

    One command reads both lanes, up to the count of each, while the express lane is empty, which it nearly always is: then this
    costs as much as reading one. When it was full, a script reads both, by shares, until it is empty.

    Attributes:
        streams: of both lanes, in the order in which they are read.
        express_has_more: whether the express lane may have a backlog.

    Args:
        access: the group.
        settling: releases what exceeds the room, and finishes entries that are meant for another group.
    """

    def __init__(self, access: GroupAccess, settling: PartitionSettling) -> None:
        self._access = access
        self._settling = settling
        self._main_share = MainShare()
        self.express_has_more = False
        self._waiting = WaitingRead(access.reading, access.group, access.name, access.commands)
        self.streams = [lane.stream for lane in access.lanes]

    @translating
    async def read(self, count: int, block: float) -> list[Delivery]:
        """Read up to `count` new entries, waiting up to `block` seconds for the first. 0 does not wait.

        Entries of the express lane come first. While both lanes have a backlog, about every tenth is from the main lane.

        After `QueueUnavailable`, entries may have been delivered in the reply that was lost: see `claim_own`.
        Do not cancel it, for the same reason.
        """
        try:
            if not block and self._access.shared is not None:
                return await self._read_by_shares(count)
            taken = await self._read_by_shares(count) if self.express_has_more else []
            return taken or await self._read_both(count, block)
        except NoGroup:
            await self._access.restore_group()
            return []

    async def _read_both(self, count: int, block: float) -> list[Delivery]:
        """Read up to `count` entries of each lane, and immediately release entries that exceed the room."""
        return await self.received(await self._waiting.read(self.streams, count, block), count, count)

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
        count = min(count, _MOST_FROM_SCRIPT)
        share = self._main_share.next(count)
        access = self._access
        if access.shared is not None:
            express, main = await access.call_together("read_lanes", self.streams, [count, share])
        else:
            with translated():
                express, main = await access.reading.run(
                    access.script("read_lanes"), self.streams, [access.group, access.name, count, share]
                )
        self.express_has_more = len(express) >= count - share
        taken = [_read(lane, entries) for lane, entries in zip(access.lanes, (express, main), strict=True)]
        return await self._ours([*taken[0], *taken[1]])

    @translating
    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Claim up to `count` entries pending under this name, at most a hundred, other than the `known`.

        Returns none only if there are no others. They are `counted` as another delivery unless they were delivered to this
        process in a lost reply.
        """
        for lane in self._access.lanes:
            held = {entry.id for entry in known if entry.stream == lane.stream}
            if claimed := await self._claim_own_of(lane, min(count, _MOST_FROM_SCRIPT), held, counted=counted):
                return claimed
        return []

    async def _claim_own_of(self, lane: LaneKeys, count: int, held: set[str], *, counted: bool) -> list[Delivery]:
        after = "-"
        # A process may hold ten thousand entries, which are examined in pages, because it gets no others in the meantime.
        while page := await self._own_pending(lane, after):
            after = f"({page[-1]}"
            unknown = [entry_id for entry_id in page if entry_id not in held][:count]
            if unknown:
                reply = await self._access.call("claim_own", [lane.stream], [int(counted), *unknown])
                if claimed := await self._ours(deliveries_of(lane, reply)):
                    return claimed
                after = f"({unknown[-1]}"  # all of these were deleted, or are another group's
        return []

    async def _own_pending(self, lane: LaneKeys, after: str) -> list[str]:
        """The IDs of the next entries of a lane that are pending under this name."""
        try:
            with translated():
                rows: Any = await self._access.control.xpending_range(
                    lane.stream, self._access.group, after, "+", MOST_IDS, consumername=self._access.name
                )
        except NoGroup:
            await self._access.restore_group()
            return []
        return [row["message_id"].decode() for row in rows]

    @translating
    async def claim_abandoned(self, count: int) -> Abandoned:
        """Claim up to `count` entries that were released, or are held by consumers whose heartbeat has ended.

        These consumers are removed if they hold nothing. Their entries are claimed only after this consumer's own heartbeat has been
        kept for a lifetime, because all other heartbeats have expired as well after an outage of Redis.
        """
        keys = self._access.keys
        names = [keys.alive, keys.standing, keys.clock]
        for lane in self._access.lanes:
            names += [lane.stream, lane.released]
        released, dead = await self._access.call_together("claim_abandoned", names, [count, _MOST_DEAD])
        return Abandoned(await self._claimed(released), await self._claimed(dead))

    async def _claimed(self, by_lane: Sequence[Any]) -> list[Delivery]:
        found = (deliveries_of(lane, entries) for lane, entries in zip(self._access.lanes, by_lane, strict=True))
        return await self._ours([delivery for deliveries in found for delivery in deliveries])

    async def _ours(self, deliveries: list[Delivery]) -> list[Delivery]:
        """The deliveries for this group. The others are finished for it."""
        group = self._access.group.encode()
        others = [delivery.entry for delivery in deliveries if delivery.fields.get(GROUP, group) != group]
        if not others:
            return deliveries
        # If the process dies here, they stay pending and come again.
        await self._settling.ack(others)
        return [delivery for delivery in deliveries if delivery.fields.get(GROUP, group) == group]


def _read(lane: LaneKeys, entries: Sequence[Any]) -> list[Delivery]:
    """The deliveries of entries that were read from a lane for the first time."""
    return [to_delivery(lane.stream, entry_id, pairs(fields), 1) for entry_id, fields in entries]
