"""The source of the deliveries of one partition: new entries of both lanes, and entries that its consumer or others have left behind."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from ingest.domain.deliveries.delivery import Abandoned, Delivery, EntryRef
from ingest.domain.deliveries.entry_fields import EXPECTED_VERSION, GROUP
from ingest.queue.consume.group_access import MOST_IDS, GroupAccess, deliveries_of
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
            return taken or await self.received(await self._waiting.read(self.streams, count, block), count, count)
        except NoGroup:
            await self._access.restore_group()
            return []

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
        if others:
            # If the process dies here, they stay pending and come again.
            await self._settling.ack(others)
            deliveries = [delivery for delivery in deliveries if delivery.fields.get(GROUP, group) == group]
        return await self._with_announced_versions(deliveries)

    async def _with_announced_versions(self, deliveries: list[Delivery]) -> list[Delivery]:
        """The deliveries, which expect the newest versions that were announced while their entries waited."""
        expecting = [at for at, each in enumerate(deliveries) if each.order_id and each.expected_version() is not None]
        for start in range(0, len(expecting), MOST_IDS):
            page = expecting[start : start + MOST_IDS]
            records = [self._access.keys.version_of(str(deliveries[at].order_id)) for at in page]
            with translated():
                found = await self._access.acking.run(self._access.script("announced_versions"), records, ())
            for at, version in zip(page, found, strict=True):
                fields = deliveries[at].fields
                if version is not None and int(version) > int(fields[EXPECTED_VERSION]):
                    fields = {**fields, EXPECTED_VERSION: version}
                    deliveries[at] = msgspec.structs.replace(deliveries[at], fields=fields)
        return deliveries


def _read(lane: LaneKeys, entries: Sequence[Any]) -> list[Delivery]:
    """The deliveries of entries that were read from a lane for the first time."""
    return [to_delivery(lane.stream, entry_id, pairs(fields), 1) for entry_id, fields in entries]
