"""How a consumer shows that it lives, keeps what it holds, and leaves."""

from collections.abc import Sequence

from ingest.domain.deliveries.delivery import EntryRef, Heartbeat
from ingest.domain.fetch.outage import Outage
from ingest.queue.consume.member import MOST_IDS, Member
from ingest.queue.consume.outage_reports import report_key, report_of
from ingest.queue.redis.connection import all_translated, translated


@all_translated
class LiveMember(Member):
    """Keeps the contract of `ingest.flow.ports.Liveness`."""

    async def heartbeat(self, lifetime: float) -> Heartbeat:
        """Say that this consumer lives: for `lifetime` seconds from now it is not taken for dead."""
        keys = [self._keys.alive, self._keys.standing, self._keys.clock, self._keys.maintenance]
        with translated():
            reply = await self._scripts.heartbeat(keys, [self.name, int(lifetime * 1000)])
            milliseconds, is_first, leads, consumers = reply
        return Heartbeat(milliseconds / 1000, bool(is_first), bool(leads), consumers)

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """Renew the lease of held entries; return those that this consumer has lost."""
        lost: set[EntryRef] = set()
        for lane, ids in self._by_lane(entries):
            for start in range(0, len(ids), MOST_IDS):
                arguments = [self._group, self.name, *ids[start : start + MOST_IDS]]
                reply = await self._call_group(self._scripts.renew, [lane.stream], arguments)
                lost.update(EntryRef(lane.stream, entry_id.decode()) for entry_id in reply)
        return lost

    async def report_outage(self, outage: Outage | None, lifetime: float) -> None:
        """Report for `lifetime` seconds why the circuit is open, or (None) that it is closed."""
        value, milliseconds = report_of(outage, lifetime)
        with translated():
            await self._control.set(report_key(self._keys, self.name), value, px=milliseconds)

    async def leave(self) -> int:
        """Remove this consumer from the group unless entries are pending under its name; others may claim those at once.

        Returns:
            How many of them it has not released.
        """
        keys = [self._keys.alive, self._keys.standing, self._keys.maintenance]
        keys += [lane.stream for lane in self._lanes]
        return int(await self._call_group(self._scripts.leave, keys, [self._group, self.name]))
