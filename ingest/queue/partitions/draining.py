"""Moves the traces of orders out of former partitions, and reports the rest that workers have to process.

Dead letters and the marks of erased orders move to the order's current partition. A dead letter is added there by one pass and deleted here
by the next one, if it is still there. So it remains in at least one of them if this process dies, or if a failover loses the addition. Its
identity travels with it, and the queue that adds it remembers the identity until the change is complete, so each dead letter is added once,
however often it is moved. Entries and retries stay until workers have processed them.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from ingest.domain.deliveries.entry_fields import MOVED_FROM, SEEN_KEY
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import UserError
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.dead_letter_pages import DeadLetterPages, Row, together
from ingest.queue.partitions.groups import groups_of
from ingest.queue.redis.combined_calls import ClientRunner
from ingest.queue.redis.connection import replies, translated
from ingest.queue.redis.script_call import ScriptCall
from ingest.queue.redis.scripts import load

_EVERYTHING = Selection(everything=True)
_PAGE = 1_000
# Dead letters that are read by one round trip.
_MOVED_TOGETHER = 50
# Dead letters that one pass adds. Until the next pass, they are in two partitions.
_MOST_ADDED = 10_000


class ChangedMeanwhile(UserError):
    """Another process has changed the partitions at the same time."""


@dataclass(frozen=True, slots=True)
class Rest:
    """The orders of a former layout in the queue of one partition.

    Attributes:
        entries: of its lanes, in a queue that is not current any more.
        retries: of all groups, likewise.
        is_open: whether producers can add further ones.
        is_empty: whether there is no such order, and none can come.
    """

    entries: int
    retries: int
    is_open: bool
    is_empty: bool


@dataclass(frozen=True, slots=True)
class DeadLetterMoves:
    """The result of one pass over the dead letters of a queue.

    Attributes:
        added: dead letters that were added to their current partition.
        is_complete: whether no dead letter is left to move or to delete.
    """

    added: int
    is_complete: bool


class Draining:
    """Drains the queues of former partitions. Its methods raise `QueueUnavailable` when Redis cannot be used right now.

    Args:
        client: of the former partitions.
        group: a consumer group of the queue. Others are found.
        target: of the current partitions, if they are in another Redis.
    """

    def __init__(self, client: Redis, group: str, target: Redis | None = None) -> None:
        self._client = client
        self._target = target or client
        self._group = group
        self._rest = load(client, "partition_rest")
        self._adopt = load(self._target, "adopt_dead_letter")
        self._drop = load(client, "drop_moved")

    async def rest(self, layout: Layout, queue: str) -> Rest:
        """Return the orders that workers have to process."""
        keys, is_current = Keys.of(queue), queue in layout.current
        names = [keys.clock, keys.stream, keys.express]
        for group in await groups_of(self._client, queue, self._group):
            of_group = Keys.of(queue, group)
            names += [of_group.retry, of_group.retry_announced]
        with translated():
            arguments = [layout.partitions if is_current else 0]
            entries, retries, has_orders, is_open = await self._rest(names, arguments)
        counts = (0, 0) if is_current else (int(entries), int(retries))
        return Rest(*counts, is_open=bool(is_open), is_empty=not (has_orders or is_open))

    async def move_dead_letters(self, layout: Layout, queue: str) -> DeadLetterMoves:
        """Add dead letters of orders that belong to another partition there, and delete those that an earlier call has added.

        Raises:
            ChangedMeanwhile: producers enqueue by a later layout already.
        """
        added = 0
        for group in await groups_of(self._client, queue, self._group):
            pages = DeadLetterPages(self._client, Keys.of(queue, group))
            async with aclosing(pages.oldest_first(_EVERYTHING)) as found:
                async for page in found:
                    rows = [row for row in page.rows if self._leaves(layout, queue, row[0].order_id or "")]
                    for some in together(rows, _MOVED_TOGETHER):
                        added += await self._move(layout, queue, group, some)
                    if added >= _MOST_ADDED:
                        break
        return DeadLetterMoves(added, is_complete=not added)

    async def copy_erased(self, layout: Layout, queue: str) -> None:
        """Mark the orders that are marked as erased here in their current partition as well."""
        key, start = Keys.of(queue).erased, 0
        while True:
            with translated():
                page: Any = await self._client.zrange(key, start, start + _PAGE - 1, withscores=True)
            await self._mark(self._by_partition(layout, queue, dict(page)))
            if len(page) < _PAGE:
                return
            start += _PAGE

    async def _mark(self, erased: Mapping[str, Mapping[bytes, float]]) -> None:
        for target, marks in erased.items():
            with translated():
                await self._target.zadd(Keys.of(target).erased, marks, nx=True)

    async def _move(self, layout: Layout, queue: str, group: str, rows: Sequence[Row]) -> int:
        source = Keys.of(queue, group)
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                for entry, _ in rows:
                    pipe.xrange(source.dead, entry.entry_id, entry.entry_id)
                found = [each for entries in await replies(pipe) for each in entries]
            if not found:
                return 0
            seen: Any = await self._client.hmget(source.dead_seen, [fields.get(SEEN_KEY, b"") for _, fields in found])
            order_ids = {entry.entry_id.encode(): entry.order_id or "" for entry, _ in rows}
            calls = []
            for (entry_id, fields), noted in zip(found, seen, strict=True):
                target = Keys.of(layout.queue_of_order(order_ids[entry_id]), group)
                fields.setdefault(MOVED_FROM, f"{queue} {entry_id.decode()}".encode())
                counted = (noted or b"").partition(b" ")[2] if (noted or b"").startswith(entry_id) else b""
                names = [target.dead, target.dead_seen, target.dead_moved, target.erased, target.clock]
                parts = [part for pair in fields.items() for part in pair]
                calls.append(ScriptCall(self._adopt, names, [layout.generation, fields[MOVED_FROM], counted, *parts]))
            added = await ClientRunner(self._target).run_all(calls)
            # Those that were moved are deleted, even if the server of another one cannot be used.
            if there := [entry_id for (entry_id, _), reply in zip(found, added, strict=True) if reply == 0]:
                await self._drop([source.dead, source.dead_seen, source.dead_moved], there)
            for reply in added:
                if isinstance(reply, Exception):
                    raise reply
        if -1 in added:
            raise ChangedMeanwhile(f"another process has changed the partitions of {layout.queue} at the same time")
        return added.count(1)

    async def forget_moves(self, queue: str) -> None:
        """Forget which dead letters were moved here, when no further ones can come."""
        for group in await groups_of(self._target, queue, self._group):
            key = Keys.of(queue, group).dead_moved
            cursor: int | None = None
            while cursor != 0:
                with translated():
                    cursor, found = await self._target.hscan(key, cursor or 0, count=_PAGE)
                    if found:
                        await self._target.hdel(key, *found)

    def _leaves(self, layout: Layout, queue: str, order_id: str) -> bool:
        return self._target is not self._client or layout.queue_of_order(order_id) != queue

    def _by_partition(
        self, layout: Layout, queue: str, erased: Mapping[bytes, float]
    ) -> Mapping[str, Mapping[bytes, float]]:
        """Return the marks by the queue to which their order belongs, without the marks that stay in this queue."""
        found: dict[str, dict[bytes, float]] = defaultdict(dict)
        for order_id, at in erased.items():
            name = order_id.decode(errors="replace")
            if self._leaves(layout, queue, name):
                found[layout.queue_of_order(name)][order_id] = at
        return found
