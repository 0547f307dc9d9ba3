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

from ingest.domain.delivery import Beat, DeadReason, Delivery
from ingest.queue.capabilities import Capabilities, probe
from ingest.queue.connection import COMMAND_TIMEOUT, NoGroup, control_client, is_out_of_memory, translated
from ingest.queue.entries import ATTEMPT, ENQUEUED_AT, flat, pairs, to_delivery
from ingest.queue.keys import Keys
from ingest.queue.line import Line
from ingest.queue.scripts import Scripts
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
# Lua's unpack is limited by its stack (about 8,000 values).
_MOST_IDS = 2_000
# What was given back counts as idle since 1970; nothing else is silent for years.
_GIVEN_BACK = 10 * 365 * 24 * 3600 * 1000


class Consumer:
    """A named consumer of one queue's group.

    All methods raise `QueueUnavailable` when Redis cannot be used right now; calling again is always safe. A group
    that has vanished is made again from the start of the stream: what is seen a second time changes nothing.
    """

    def __init__(
        self,
        control: Redis,
        reading: Line,
        acking: Line,
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
        self._alive = [keys.alive + group, keys.standing + group]
        self._claims_as_it_reads = capabilities.claims_as_it_reads
        self._cursor = b"0-0"
        self.name = name

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, queue: str, group: str, name: str, block: float) -> AsyncIterator[Self]:
        """A consumer with its connections: one that blocks in reads, one for acks, some for all else."""
        keys = Keys.of(queue)
        async with (
            control_client(url) as control,
            Line.open(url, block + COMMAND_TIMEOUT) as reading,
            Line.open(url, COMMAND_TIMEOUT) as acking,
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
        return True

    async def _has_group(self) -> bool:
        if not await self._control.exists(self._keys.stream):
            return False
        groups = await self._control.xinfo_groups(self._keys.stream)
        return any(group["name"] == self._group.encode() for group in groups)

    async def read(self, count: int, block: float, idle: float | None = None) -> list[Delivery]:
        """Wait up to `block` seconds for new entries, and take up to `count`.

        After `QueueUnavailable`, entries may have been delivered in the reply that was lost: see `claim_own`.
        Do not cancel it, for the same reason.

        Args:
            count: most entries.
            block: seconds.
            idle: where the server can, take over entries idle for so many seconds with the same command, first.
        """
        command: list[str | int] = ["XREADGROUP", "GROUP", self._group, self.name, "COUNT", count]
        command += ["BLOCK", max(1, int(block * 1000))]
        if self._claims_as_it_reads and idle is not None:
            command += ["CLAIM", int(idle * 1000)]
        try:
            with translated():
                reply = await self._reading.call(*command, "STREAMS", self._keys.stream, ">")
        except NoGroup:
            await self._restore_group()
            return []
        # A claiming read tells the idle time and the earlier deliveries of each entry, too.
        return [
            to_delivery(entry_id, pairs(fields), more[1] + 1 if more else 1)
            for entry_id, fields, *more in _entries(reply)
        ]

    async def claim_own(self, count: int, known: Collection[str]) -> list[Delivery]:
        """Take up to `count` entries pending under this name, other than the `known`."""
        arguments = [self._group, self.name, count, *known]
        return _deliveries(await self._call_group(self._scripts.claim_own, [self._keys.stream], arguments) or [])

    async def claim_dead(self, count: int) -> list[Delivery]:
        """Take over up to `count` entries of consumers whose heartbeat has ended.

        Those consumers that hold nothing are removed. Nothing is done while this consumer's own heartbeat has not been kept
        for a lifetime: after an outage of Redis everybody else has been silent, too.
        """
        arguments = [self._group, self.name, count]
        keys = [self._keys.stream, *self._alive]
        return _deliveries(await self._call_group(self._scripts.claim_dead, keys, arguments) or [])

    async def claim_idle(self, count: int, idle: float) -> tuple[list[Delivery], bool]:
        """Take over up to `count` entries idle for `idle` seconds, going on where the last call stopped.

        While this consumer's own heartbeat has not been kept for a lifetime, only what was given back.

        Returns:
            The deliveries, and whether the sweep has come round to its start.
        """
        arguments: list[Any] = [self._group, self.name, int(idle * 1000), _GIVEN_BACK, self._cursor, count]
        reply = await self._call_group(self._scripts.claim_idle, [self._keys.stream, *self._alive], arguments)
        self._cursor, entries = reply or (b"0-0", [])
        return _deliveries(entries), self._cursor == b"0-0"

    async def beat(self, lifetime: float) -> Beat:
        """Say that this consumer lives: for `lifetime` seconds from now it is not taken for dead."""
        with translated():
            milliseconds, is_first = await self._scripts.beat(self._alive, [self.name, int(lifetime * 1000)])
        return Beat(now=milliseconds / 1000, is_first=bool(is_first))

    async def ack(self, entry_ids: Sequence[str]) -> int:
        """Finish entries whose rows are committed; return how many of them were still pending."""
        acked = 0
        for start in range(0, len(entry_ids), _MOST_IDS):
            arguments = [self._group, *entry_ids[start : start + _MOST_IDS]]
            with translated():
                acked += await self._acking.run(self._scripts.ack, [self._keys.stream], arguments)
        return acked

    async def reschedule(self, delivery: Delivery, after: float, attempt: int) -> bool:
        """Move the entry to the retry set, due in `after` seconds; False if this consumer no longer holds it."""
        fields = flat({**_carried(delivery), ATTEMPT: b"%d" % attempt})
        keys = [self._keys.stream, self._keys.retry, self._keys.retry_entries]
        arguments: list[Any] = [self._group, self.name, delivery.entry_id, int(after * 1000), *fields]
        return bool(await self._call_group(self._scripts.reschedule, keys, arguments))

    async def bury(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
        """Move the entry to the dead letters; False if this consumer no longer holds it."""
        about = {
            b"reason": reason.encode(),
            b"error": error.encode(errors="replace"),
            b"attempts": b"%d" % delivery.attempt,
            b"first_enqueued_at": b"%d" % (delivery.enqueued_at * 1000),
            b"worker": self.name.encode(),
        }
        fields = flat({**delivery.fields, **about})
        arguments: list[Any] = [self._group, self.name, delivery.entry_id, *fields]
        return bool(await self._call_group(self._scripts.bury, [self._keys.stream, self._keys.dead], arguments))

    async def move_due(self, most: int) -> int:
        """Put up to `most` scheduled entries whose time has come back into the stream; return how many."""
        with translated():
            keys = [self._keys.stream, self._keys.retry, self._keys.retry_entries]
            return int(await self._scripts.move_due(keys, [most]))

    async def renew(self, entry_ids: Sequence[str]) -> set[str]:
        """Renew the lease of held entries; return those that this consumer has lost."""
        lost: set[str] = set()
        for start in range(0, len(entry_ids), _MOST_IDS):
            arguments = [self._group, self.name, *entry_ids[start : start + _MOST_IDS]]
            reply = await self._call_group(self._scripts.renew, [self._keys.stream], arguments)
            lost.update(entry_id.decode() for entry_id in reply or [])
        return lost

    async def release(self, entry_ids: Sequence[str]) -> int:
        """Give entries back for immediate redelivery, uncounted; return how many were still held."""
        released = 0
        for start in range(0, len(entry_ids), _MOST_IDS):
            arguments = [self._group, self.name, *entry_ids[start : start + _MOST_IDS]]
            released += await self._call_group(self._scripts.release, [self._keys.stream], arguments) or 0
        return released

    async def leave(self) -> int:
        """Remove this consumer from the group unless entries are pending under its name; others may take them over at once.

        Returns:
            How many of them it has not given back.
        """
        keys = [self._keys.stream, *self._alive]
        return int(await self._call_group(self._scripts.leave, keys, [self._group, self.name]) or 0)

    async def remove_silent(self, idle: float) -> int:
        """Remove consumers without a heartbeat that hold nothing and were silent for `idle` seconds; return how many."""
        arguments: list[Any] = [self._group, self.name, int(idle * 1000)]
        keys = [self._keys.stream, self._alive[0]]
        return int(await self._call_group(self._scripts.remove_silent, keys, arguments) or 0)

    async def trim(self) -> int:
        """Delete entries that every group has finished, where finishing could not; return how many."""
        return int(await self._call_group(self._scripts.trim, [self._keys.stream], [self._group]) or 0)

    async def _call_group(self, script: AsyncScript, keys: list[str], arguments: list[Any]) -> Any:
        """Run a script that needs the group; None where the group had to be made again."""
        try:
            with translated():
                return await script(keys, arguments)
        except NoGroup:
            await self._restore_group()
            return None

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
    return {**delivery.fields, ENQUEUED_AT: b"%d" % (delivery.enqueued_at * 1000)}


def _deliveries(entries: Sequence[Any]) -> list[Delivery]:
    return [to_delivery(entry_id, pairs(fields), int(count)) for entry_id, fields, count in entries]
