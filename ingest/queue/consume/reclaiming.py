"""Claims the entries that this process or others have left behind: in each partition, in turn, until there are enough.

Each claim is one atomic step. If the process dies here, the claimed entries are pending under its name, and its successor claims them.
"""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec

from ingest.domain.deliveries.delivery import Abandoned, Delivery, EntryRef
from ingest.domain.deliveries.entry_fields import EXPECTED_VERSION, GROUP
from ingest.queue.consume.group_access import MOST_IDS, GroupAccess, deliveries_of
from ingest.queue.consume.partition import Partition, divide
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.consume.settling import PartitionSettling
from ingest.queue.layout.keys import LaneKeys
from ingest.queue.redis.connection import translating

# Seconds for which claims wait for slow servers while others have responded.
_WAIT = 0.25
# Entries that one script returns with their content, few enough that Redis responds to others within milliseconds.
MOST_FROM_SCRIPT = 100
_MOST_DEAD = 20


class QueueClaims:
    """The claims of `ingest.flow.ports.Reading`."""

    def __init__(self, partitions: PartitionSet) -> None:
        self._partitions = partitions

    @property
    def may_own_more(self) -> bool:
        """Whether entries of lost replies may be pending in one of several partitions."""
        partitions = self._partitions
        return not partitions.have_one_owner and any(each.may_own_more for each in partitions.ready("own"))

    @translating
    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Claim up to `count` entries pending under this name, other than the `known`. See `PartitionClaims.claim_own`."""
        ready = self._partitions.rotated("own")
        # At one server, the error of the call reports that a reply was lost.
        unsure = ready if self._partitions.have_one_owner else [each for each in ready if each.may_own_more]
        while unsure:
            shares = dict(divide(count, unsure))
            unsure = unsure[len(shares) :]
            claim = partial(self._claim_own_share, shares, known, counted=counted)
            claimed = await self._partitions.each("own", claim, shares, _WAIT)
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
            claimed = await self._partitions.each("claim", claim, shares, _WAIT)
            waiting = waiting[len(shares) :]
            for partition, each in claimed.items():
                found.released.extend(each.released)
                found.dead.extend(each.dead)
                if len(each.released) + len(each.dead) >= shares[partition]:
                    waiting.append(partition)
        return found

    async def _claim_share(self, shares: Mapping[Partition, int], partition: Partition) -> Abandoned:
        return await partition.reading.claim_abandoned(shares[partition])


class PartitionClaims:
    """The claims in one partition."""

    def __init__(self, access: GroupAccess, settling: PartitionSettling) -> None:
        self._access = access
        self._settling = settling

    @translating
    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Claim up to `count` entries pending under this name, at most a hundred, other than the `known`.

        Returns none only if there are no others. They are `counted` as another delivery unless they were delivered to this
        process in a lost reply.
        """
        for lane in self._access.lanes:
            held = {entry.id for entry in known if entry.stream == lane.stream}
            if claimed := await self._claim_own_of(lane, min(count, MOST_FROM_SCRIPT), held, counted=counted):
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
        access = self._access
        look = access.control.xpending_range
        rows = await access.with_group(look, lane.stream, access.group, after, "+", MOST_IDS, access.name)
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
            found = await self._access.script("announced_versions")(records, [])
            for at, version in zip(page, found, strict=True):
                fields = deliveries[at].fields
                if version is not None and int(version) > int(fields[EXPECTED_VERSION]):
                    fields = {**fields, EXPECTED_VERSION: version}
                    deliveries[at] = msgspec.structs.replace(deliveries[at], fields=fields)
        return deliveries
