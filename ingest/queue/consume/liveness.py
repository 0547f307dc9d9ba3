"""How a consumer shows that it is alive, keeps its deliveries, and leaves."""

from collections.abc import Sequence

from ingest.domain.deliveries.delivery import EntryRef, Heartbeat
from ingest.domain.fetch.outage import Outage
from ingest.queue.consume.group_access import MOST_IDS, GroupAccess
from ingest.queue.consume.outage_reports import report_key, report_of
from ingest.queue.redis.connection import translated, translating


class QueueLiveness:
    """Implements `ingest.flow.ports.Liveness` for the consumer of `access`."""

    def __init__(self, access: GroupAccess) -> None:
        self._access = access

    @translating
    async def heartbeat(self, lifetime: float) -> Heartbeat:
        """Say that this consumer lives: for `lifetime` seconds from now it is not taken for dead."""
        keys = [
            self._access.keys.alive,
            self._access.keys.standing,
            self._access.keys.clock,
            self._access.keys.maintenance,
        ]
        with translated():
            reply = await self._access.script("heartbeat")(keys, [self._access.name, int(lifetime * 1000)])
            milliseconds, is_first, leads, consumers = reply
        return Heartbeat(milliseconds / 1000, bool(is_first), bool(leads), consumers)

    @translating
    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """Renew the lease of held entries, and return the entries that this consumer has lost."""
        lost: set[EntryRef] = set()
        for lane, ids in self._access.by_lane(entries):
            for start in range(0, len(ids), MOST_IDS):
                arguments = [self._access.group, self._access.name, *ids[start : start + MOST_IDS]]
                reply = await self._access.call("renew", [lane.stream], arguments)
                lost.update(EntryRef(lane.stream, entry_id.decode()) for entry_id in reply)
        return lost

    @translating
    async def report_outage(self, outage: Outage | None, lifetime: float) -> None:
        """Report for `lifetime` seconds why the circuit is open, or (None) that it is closed."""
        value, milliseconds = report_of(outage, lifetime)
        with translated():
            await self._access.control.set(report_key(self._access.keys, self._access.name), value, px=milliseconds)

    @translating
    async def leave(self) -> int:
        """Remove this consumer from the group unless entries are pending under its name. Others may claim these immediately.

        Returns:
            How many of them it has not released.
        """
        keys = [self._access.keys.alive, self._access.keys.standing, self._access.keys.maintenance]
        keys += [lane.stream for lane in self._access.lanes]
        return int(await self._access.call("leave", keys, [self._access.group, self._access.name]))
