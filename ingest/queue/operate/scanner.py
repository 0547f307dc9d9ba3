"""Lists the places of the orders in a queue, page by page. Changes nothing."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from redis.asyncio import Redis

from ingest.domain.deliveries.entry_fields import ORDER_ID, REASON
from ingest.queue.layout.entries import pairs, valid_order_id
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.queue_parts import QueueParts, ReadLayout
from ingest.queue.redis.connection import NoGroup, translated
from ingest.queue.redis.scripts import load

# Two or three milliseconds of Redis' time.
_PAGE = 500


class Location(StrEnum):
    """Where in the queue an order is: waiting and pending are the same in both lanes."""

    WAITING = "waiting"
    PENDING = "pending"
    RETRYING = "retrying"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class OrderLocation:
    """One entry, and where it was found.

    Attributes:
        order_id: None if the entry names no valid order.
        reason: why it is a dead letter, or empty for other entries.
    """

    order_id: str | None
    place: Location
    reason: str = ""


Page = list[OrderLocation]


class QueueScanner:
    """One scan of all partitions, in the direction in which entries move. See `PartitionScanner`."""

    def __init__(self, client: Redis, layout: ReadLayout, group: str) -> None:
        self._parts: QueueParts[Callable[[], PartitionScanner]] = QueueParts(
            layout, lambda queue, _: lambda: PartitionScanner(client, queue, group)
        )

    async def queued(self) -> AsyncIterator[Page]:
        """Every entry of the lanes and of the retry sets. An entry that moves may come twice."""
        for scanner in (await self._parts.oldest_first()).values():
            async for page in scanner().queued():
                yield page

    async def dead(self) -> AsyncIterator[Page]:
        """All dead letters."""
        for scanner in (await self._parts.oldest_first()).values():
            async for page in scanner().dead():
                yield page


class PartitionScanner:
    """One scan of a queue, which sees an entry that moves once while it is under scan.

    While workers run, entries move: from the main lane to the retry set, from there to the end of the express lane, from
    there to the retry set again, and from either lane to the dead letters. So `queued` reads the main lane, the express
    lane, the retry set, and then the new entries at the end of either lane. `dead` comes after it. The scan may miss an
    entry that moves twice during the scan, or against its direction, by a replay. Workers of an older release move
    retries to the end of the main lane.

    Methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(self, client: Redis, queue: str, group: str) -> None:
        self._client = client
        self._keys = Keys.of(queue, group)
        self._group = group
        self._list = load(client, "list_dead")
        self._list_retries = load(client, "scan_retries")

    async def queued(self) -> AsyncIterator[Page]:
        """Every entry of both lanes and of the retry set. An entry that moves may come twice."""
        main = _Position(self._keys.stream, self._keys.settled)
        express = _Position(self._keys.express, self._keys.express_settled)
        for pages in (self._lane(main), self._lane(express), self._retries(), self._lane(express), self._lane(main)):
            async for page in pages:
                yield page

    async def dead(self) -> AsyncIterator[Page]:
        """All dead letters."""
        async for page in self._entries(_Position(self._keys.dead)):
            yield [
                OrderLocation(
                    valid_order_id(fields.get(ORDER_ID)),
                    Location.DEAD,
                    fields.get(REASON, b"").decode(errors="replace"),
                )
                for _, fields in page
            ]

    async def _lane(self, lane: "_Position") -> AsyncIterator[Page]:
        """The unfinished entries of a lane after the position, which moves on to the end."""
        delivered = await self._last_delivered(lane.stream)
        async for page in self._entries(lane):
            held = await self._held(lane.stream, page[0][0], page[-1][0])
            settled = await self._settled(lane.settled, [entry_id for entry_id, _ in page if entry_id not in held])
            # A delivered entry that is neither held nor settled has left the pending list without an ack. The sweep restores it.
            yield [
                OrderLocation(
                    valid_order_id(fields.get(ORDER_ID)),
                    Location.WAITING if _number(entry_id) > delivered else Location.PENDING,
                )
                for entry_id, fields in page
                if entry_id not in settled
            ]

    async def _retries(self) -> AsyncIterator[Page]:
        cursor: bytes | str = "0"
        while True:
            with translated():
                cursor, orders = await self._list_retries([self._keys.retry, self._keys.retry_entries], [cursor, _PAGE])
            yield [OrderLocation(valid_order_id(name), Location.RETRYING) for name in orders]
            if cursor == b"0":
                return

    async def _entries(self, position: "_Position") -> AsyncIterator[list[tuple[bytes, dict[bytes, bytes]]]]:
        """Pages of a stream's entries after the position, which moves on to the end, without documents and unknown fields.

        Entries that are added while a page is read come as well, so that an entry that moves does not escape.
        """
        while True:
            with translated():
                _, rows = await self._list(
                    [position.stream, self._keys.dead_seen], ["XRANGE", position.after, "+", _PAGE]
                )
            if not rows:
                return
            position.after = b"(" + rows[-1][0]
            yield [(entry_id, pairs(fields)) for entry_id, fields, _ in rows]

    async def _last_delivered(self, stream: str) -> tuple[int, int]:
        """The group's position, or the start if there is no group, because it will be created from there."""
        try:
            with translated():
                groups: Any = await self._client.xinfo_groups(stream)
        except NoGroup:
            return 0, 0
        positions = [group["last-delivered-id"] for group in groups if group["name"] == self._group.encode()]
        return _number(positions[0]) if positions else (0, 0)

    async def _settled(self, key: str, entry_ids: list[bytes]) -> set[bytes]:
        """Entries that this group has finished, and that are kept for other groups."""
        if not entry_ids:
            return set()
        names = ["{:020d}-{:020d}".format(*_number(entry_id)) for entry_id in entry_ids]
        with translated():
            scores = await self._client.zmscore(key, names)
        return {entry_id for entry_id, score in zip(entry_ids, scores, strict=True) if score is not None}

    async def _held(self, stream: str, first: bytes, last: bytes) -> set[bytes]:
        """The pending entries within a page. They may be more than the page, if entries were deleted while pending."""
        held: set[bytes] = set()
        rows: Any
        while True:
            try:
                with translated():
                    rows = await self._client.xpending_range(stream, self._group, first, last, _PAGE)
            except NoGroup:
                return held
            held.update(row["message_id"] for row in rows)
            if len(rows) < _PAGE:
                return held
            first = b"(" + rows[-1]["message_id"]


@dataclass(slots=True)
class _Position:
    """How far a stream has been read.

    Attributes:
        settled: the key of the entries that the group has finished, if it is a lane.
        after: the first ID of the next page, as XRANGE takes it.
    """

    stream: str
    settled: str = ""
    after: bytes | str = "-"


def _number(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds), int(sequence)
