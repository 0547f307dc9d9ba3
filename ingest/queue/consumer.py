"""One consumer of the group: reads entries, and moves each to where its outcome says.

Every move is one script, so it happens whole or not at all, and every script may be sent again after a lost reply:
what was done already is not done twice. If the process dies here, its entries stay pending under its name, until
its successor takes them up by `claim_own`, or another consumer by `claim_dead` when its heartbeat has ended.
"""

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import ResponseError

from ingest.domain.delivery import Abandoned, DeadReason, Delivery, EntryRef, Heartbeat, Sweep
from ingest.domain.errors import QueueUnavailable
from ingest.domain.outage import Outage
from ingest.queue.capabilities import Capabilities, probe
from ingest.queue.connection import (
    COMMAND_TIMEOUT,
    NoGroup,
    all_translated,
    control_client,
    is_out_of_memory,
    translated,
)
from ingest.queue.direct_connection import DirectConnection
from ingest.queue.entries import ATTEMPT, ENQUEUED_AT, GROUP, ORDER_ID, flat, pairs, to_delivery
from ingest.queue.keys import Keys
from ingest.queue.outage_reports import report_key, report_of
from ingest.queue.scripts import Scripts
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
# Entries for one script: few enough that Redis answers others within milliseconds. Claiming also hands over what they say.
_MOST_IDS = 200
_MOST_CLAIMS = 100
_MOST_CONSUMERS = 100
_MOST_DEAD = 20
_SWEEP_PAGE = 100
# What was released counts as idle since 1970; nothing else is silent for years.
_RELEASED = 10 * 365 * 24 * 3600 * 1000
# What a move answers for an entry that is neither pending nor in the stream, and was not moved before.
_GONE = 2


@all_translated
class Consumer:
    """A named consumer of one queue's group.

    All methods raise `QueueUnavailable` when Redis cannot be used right now; calling again is always safe. A group
    that has vanished is made again from the start of the stream: what is seen a second time changes nothing.
    """

    def __init__(
        self,
        control: Redis,
        reading: DirectConnection,
        acking: DirectConnection,
        keys: Keys,
        group: str,
        name: str,
        *,
        capabilities: Capabilities = Capabilities(),  # noqa: B008  immutable
    ) -> None:
        self._scripts = Scripts.on(control, capabilities)
        self._control = control
        self._reading = reading
        self._acking = acking
        self._keys = keys
        self._group = group
        self._claims_as_it_reads = capabilities.claims_as_it_reads
        self.name = name

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, queue: str, group: str, name: str, block: float) -> AsyncIterator[Self]:
        """A consumer with its connections: one that blocks in reads, one for acks, some for all else."""
        keys = Keys.of(queue, group)
        async with (
            control_client(url) as control,
            DirectConnection.open(url, block + COMMAND_TIMEOUT) as reading,
            DirectConnection.open(url, COMMAND_TIMEOUT) as acking,
        ):
            yield cls(control, reading, acking, keys, group, name, capabilities=await probe(control, keys.probe))

    async def ensure_group(self) -> bool:
        """Make the stream and the group where they are missing; return whether they were."""
        with translated():
            try:
                await self._control.xgroup_create(self._keys.stream, self._group, id="0", mkstream=True)
            except ResponseError as error:
                # Out of memory, Redis refuses to make a group before it looks whether there is one.
                if "BUSYGROUP" in str(error) or (is_out_of_memory(error) and await self._has_group()):
                    return False
                raise
            # A new group sees everything again; what its namesake had settled is not settled for it. Cut off here, entries
            # that other groups still keep are deleted when they have finished them: they were settled once.
            while await self._control.zremrangebyrank(self._keys.settled, 0, _MOST_IDS - 1) == _MOST_IDS:
                pass
        return True

    async def _has_group(self) -> bool:
        if not await self._control.exists(self._keys.stream):
            return False
        groups = await self._control.xinfo_groups(self._keys.stream)
        return any(group["name"] == self._group.encode() for group in groups)

    async def read(self, count: int, block: float) -> list[Delivery]:
        """Take up to `count` new entries, waiting up to `block` seconds for the first; 0 does not wait.

        Where the server can, the same command claims released entries, before new ones; never what somebody holds:
        whether a holder is dead is judged by `claim_abandoned` and `sweep`, in Redis.

        After `QueueUnavailable`, entries may have been delivered in the reply that was lost: see `claim_own`.
        Do not cancel it, for the same reason.
        """
        command: list[str | int] = ["XREADGROUP", "GROUP", self._group, self.name, "COUNT", count]
        if block:
            command += ["BLOCK", max(1, int(block * 1000))]
        if self._claims_as_it_reads:
            command += ["CLAIM", _RELEASED]
        try:
            with translated():
                reply = await self._reading.call(*command, "STREAMS", self._keys.stream, ">")
        except NoGroup:
            await self._restore_group()
            return []
        # A claiming read tells the idle time and the earlier deliveries of each entry, too.
        return await self._ours(
            [
                to_delivery(self._keys.stream, entry_id, pairs(fields), more[1] + 1 if more else 1)
                for entry_id, fields, *more in _entries(reply)
            ]
        )

    async def claim_own(self, count: int, known: Collection[EntryRef], *, counted: bool = True) -> list[Delivery]:
        """Claim up to `count` entries pending under this name, other than the `known`; none only if there are no others.

        Args:
            count: most entries; never more than a hundred at once.
            known: entries that this process holds.
            counted: whether this is another delivery of them; not if they were delivered to this process in a lost reply.
        """
        held, after = {entry.id for entry in known}, "-"
        # What a process holds may be ten thousand entries: looked through in pages, as nothing else is given to it meanwhile.
        while page := await self._own_pending(after):
            after = f"({page[-1]}"
            unknown = [entry_id for entry_id in page if entry_id not in held][: min(count, _MOST_CLAIMS)]
            if unknown:
                arguments = [self._group, self.name, int(counted), *unknown]
                reply = await self._call_group(self._scripts.claim_own, [self._keys.stream], arguments)
                if claimed := await self._ours(self._deliveries(reply)):
                    return claimed
                after = f"({unknown[-1]}"  # all of these were deleted, or are another group's
        return []

    async def _own_pending(self, after: str) -> list[str]:
        """The IDs of the next entries that are pending under this name."""
        try:
            with translated():
                rows: Any = await self._control.xpending_range(
                    self._keys.stream, self._group, after, "+", _MOST_IDS, consumername=self.name
                )
        except NoGroup:
            await self._restore_group()
            return []
        return [row["message_id"].decode() for row in rows]

    async def claim_abandoned(self, count: int) -> Abandoned:
        """Claim up to `count` entries that were released, or are held by consumers whose heartbeat has ended.

        Those consumers that hold nothing are removed. Nothing is claimed from them while this consumer's own heartbeat has
        not been kept for a lifetime: after an outage of Redis everybody else has been silent, too.
        """
        keys = [*self._liveness(), self._keys.released]
        arguments: list[Any] = [self._group, self.name, count, _MOST_DEAD]
        released, dead = await self._call_group(self._scripts.claim_abandoned, keys, arguments)
        return Abandoned(await self._ours(self._deliveries(released)), await self._ours(self._deliveries(dead)))

    async def heartbeat(self, lifetime: float) -> Heartbeat:
        """Say that this consumer lives: for `lifetime` seconds from now it is not taken for dead."""
        keys = [self._keys.alive, self._keys.standing, self._keys.clock, self._keys.maintenance]
        with translated():
            reply = await self._scripts.heartbeat(keys, [self.name, int(lifetime * 1000)])
            milliseconds, is_first, leads, consumers = reply
        return Heartbeat(milliseconds / 1000, bool(is_first), bool(leads), consumers)

    async def report_outage(self, outage: Outage | None, lifetime: float) -> None:
        """Report for `lifetime` seconds why the circuit is open, or (None) that it is closed."""
        value, milliseconds = report_of(outage, lifetime)
        with translated():
            await self._control.set(report_key(self._keys, self.name), value, px=milliseconds)

    async def ack(self, entries: Sequence[EntryRef]) -> int:
        """Finish entries whose rows are committed; return how many of them this consumer still owned."""
        keys = [self._keys.stream, self._keys.settled]
        acked = 0
        entry_ids = sorted(entry.id for entry in entries)  # about as Redis keeps them, so that one look finds many
        for start in range(0, len(entry_ids), _MOST_IDS):
            arguments = [self._group, self.name, *entry_ids[start : start + _MOST_IDS]]
            try:
                with translated():
                    acked += await self._acking.run(self._scripts.ack, keys, arguments)
            except NoGroup:
                await self._restore_group()  # with everything that it has to finish
        return acked

    async def reschedule(self, delivery: Delivery, after: float, attempt: int) -> bool:
        """Move the entry to the retry set, due in `after` seconds; False if it is no longer this consumer's to move.

        An entry that Redis has lost (a failover, a flush) is put there all the same.
        """
        fields = flat({**_carried(delivery), ATTEMPT: b"%d" % attempt})
        keys = [*self._moving(delivery), self._keys.retry, self._keys.retry_entries, self._keys.retry_announced]
        arguments: list[Any] = [self._group, self.name, delivery.entry.id, int(after * 1000), *fields]
        moved = await self._call_group(self._scripts.reschedule, keys, arguments)
        if moved == _GONE:
            _log.warning("lost_entry_rescheduled", entry_id=delivery.entry.id, order_id=delivery.order_id)
        return bool(moved)

    async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """Move the entry to the dead letters; False if it is no longer this consumer's to move.

        The order of an entry that Redis has lost goes to the retry set instead: nobody knows what became of it.
        """
        about = {
            b"reason": reason.encode(),
            b"error": error.encode(errors="replace"),
            b"attempts": b"%d" % delivery.attempt,
            b"first_enqueued_at": b"%d" % (delivery.enqueued_at * 1000),
            b"worker": self.name.encode(),
        }
        fields = flat({**_without_group(delivery), **about})
        arguments: list[Any] = [self._group, self.name, delivery.entry.id, *fields]
        moved = await self._call_group(self._scripts.dead_letter, [*self._moving(delivery), self._keys.dead], arguments)
        if moved == _GONE:
            await self.reschedule(delivery, 0.0, delivery.attempt)
        return bool(moved == 1)

    async def renew(self, entries: Sequence[EntryRef]) -> set[EntryRef]:
        """Renew the lease of held entries; return those that this consumer has lost."""
        lost: set[EntryRef] = set()
        entry_ids = [entry.id for entry in entries]
        for start in range(0, len(entry_ids), _MOST_IDS):
            arguments = [self._group, self.name, *entry_ids[start : start + _MOST_IDS]]
            reply = await self._call_group(self._scripts.renew, [self._keys.stream], arguments)
            lost.update(EntryRef(self._keys.stream, entry_id.decode()) for entry_id in reply)
        return lost

    async def release(self, deliveries: Sequence[Delivery]) -> int:
        """Release entries for immediate redelivery, uncounted; return how many were still held.

        The order of an entry that Redis has lost goes to the retry set.
        """
        keys = [self._keys.stream, self._keys.released]
        released = 0
        for start in range(0, len(deliveries), _MOST_IDS):
            page = {delivery.entry.id: delivery for delivery in deliveries[start : start + _MOST_IDS]}
            names = [part for entry_id, each in page.items() for part in (entry_id, each.fields.get(ORDER_ID, b""))]
            count, gone = await self._call_group(self._scripts.release, keys, [self._group, self.name, *names])
            released += count
            for entry_id in gone:
                delivery = page[entry_id.decode()]
                await self.reschedule(delivery, 0.0, delivery.attempt)
        return released

    async def leave(self) -> int:
        """Remove this consumer from the group unless entries are pending under its name; others may claim those at once.

        Returns:
            How many of them it has not released.
        """
        keys = [self._keys.stream, self._keys.alive, self._keys.standing, self._keys.maintenance]
        return int(await self._call_group(self._scripts.leave, keys, [self._group, self.name]))

    # -- for the whole group ----------------------------------------------------------------------------------

    async def sweep(self, idle: float) -> Sweep:
        """Look at one page of what the group has in flight: release what nobody has renewed for `idle` seconds.

        What has left the pending list without an ack is put back. The next call, of whatever consumer, goes on there.
        While this consumer's own heartbeat has not been kept for a lifetime, nothing is released that somebody holds.
        """
        keys = [*self._liveness(), self._keys.released, self._keys.settled, self._keys.maintenance]
        arguments: list[Any] = [self._group, self.name, int(idle * 1000), _SWEEP_PAGE]
        is_complete, released, lost = await self._call_group(self._scripts.sweep, keys, arguments)
        return Sweep(bool(is_complete), released, len(lost))

    async def move_due(self, most: int) -> int:
        """Put up to `most` scheduled entries whose time has come back into the stream; return how many."""
        keys = [self._keys.stream, self._keys.retry, self._keys.retry_entries, self._keys.clock, self._keys.dead]
        keys.append(self._keys.retry_announced)
        with translated():
            return int(await self._scripts.move_due(keys, [self._group, most]))

    async def trim(self, most: int) -> int:
        """Delete up to `most` entries that every group has finished, where finishing could not; return how many."""
        own = self._group.encode()
        try:
            with translated():
                groups = await self._control.xinfo_groups(self._keys.stream)
        except NoGroup:
            await self._restore_group()
            return 0
        others: list[bytes] = [group["name"] for group in groups if group["name"] != own]
        keys: list[Any] = [self._keys.stream, self._keys.settled]
        for other in others:
            keys += [
                key.removesuffix(self._group).encode() + other for key in (self._keys.settled, self._keys.maintenance)
            ]
        # -1 if another group has come in between: next time.
        return max(0, int(await self._call_group(self._scripts.trim, keys, [self._group, most, *others])))

    async def remove_stale(self, idle: float) -> int:
        """Remove consumers without a heartbeat that hold nothing and were silent for `idle` seconds; return how many."""
        try:
            with translated():
                rows = await self._control.xinfo_consumers(self._keys.stream, self._group)
        except NoGroup:
            await self._restore_group()
            return 0
        own = self.name.encode()
        silent = [
            row["name"] for row in rows if not row["pending"] and row["idle"] > idle * 1000 and row["name"] != own
        ]
        keys = [self._keys.stream, self._keys.alive]
        removed = 0
        for start in range(0, len(silent), _MOST_CONSUMERS):
            arguments = [self._group, *silent[start : start + _MOST_CONSUMERS]]
            removed += int(await self._call_group(self._scripts.remove_consumers, keys, arguments))
        return removed

    # -- how ----------------------------------------------------------------------------------------------------

    def _liveness(self) -> list[str]:
        return [self._keys.stream, self._keys.alive, self._keys.standing, self._keys.clock]

    def _moving(self, delivery: Delivery) -> list[str]:
        # Of the entry, not of the consumer: who has lost it to another finds the other's receipt. And of its order: after a failover
        # its ID may be another's.
        receipt = f"{self._keys.receipts}{self._group}:{delivery.entry.id}:{delivery.order_id or ''}"
        return [self._keys.stream, self._keys.settled, self._keys.clock, receipt]

    async def _ours(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Those that are meant for this group; the others are finished for it."""
        group = self._group.encode()
        others = [delivery.entry for delivery in deliveries if delivery.fields.get(GROUP, group) != group]
        if not others:
            return deliveries
        # Cut off here, they stay pending and come again.
        await self.ack(others)
        return [delivery for delivery in deliveries if delivery.fields.get(GROUP, group) == group]

    def _deliveries(self, entries: Sequence[Any]) -> list[Delivery]:
        stream = self._keys.stream
        return [to_delivery(stream, entry_id, pairs(fields), int(count)) for entry_id, fields, count in entries]

    async def _call_group(self, script: AsyncScript, keys: list[str], arguments: list[Any]) -> Any:
        """Run a script that needs the group; one that is missing is made again."""
        for _ in range(2):
            try:
                with translated():
                    return await script(keys, arguments)
            except NoGroup:
                await self._restore_group()
        raise QueueUnavailable("the consumer group vanishes as soon as it is made")

    async def _restore_group(self) -> None:
        if await self.ensure_group():
            _log.warning("group_restored", stream=self._keys.stream, group=self._group)


def _entries(reply: Any) -> Any:
    """The entries in a reply about one stream, in the form of either protocol."""
    if not reply:
        return []
    return next(iter(reply.values())) if isinstance(reply, dict) else reply[0][1]


def _carried(delivery: Delivery) -> Mapping[bytes, bytes]:
    """The fields that go along when an entry moves: the new one's ID would give a later time."""
    return {**_without_group(delivery), ENQUEUED_AT: b"%d" % (delivery.enqueued_at * 1000)}


def _without_group(delivery: Delivery) -> Mapping[bytes, bytes]:
    # Told anew when it goes back into the stream.
    return {name: value for name, value in delivery.fields.items() if name != GROUP}
