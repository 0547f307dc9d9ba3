"""Where order IDs are in a queue: read page by page, changing nothing, in the direction in which entries move."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import msgspec
from redis.asyncio import Redis

from ingest.domain.order import InvalidOrderId, parse_order_id
from ingest.queue.connection import NoGroup, translated
from ingest.queue.entries import ORDER_ID, pairs, unpacked
from ingest.queue.keys import Keys

_PAGE = 1000


class Location(StrEnum):
    """A place in Redis where an order may be."""

    WAITING = "waiting"
    PENDING = "pending"
    RETRYING = "retrying"
    DEAD = "dead"


@dataclass(frozen=True, slots=True)
class OrderLocation:
    """An entry that was seen.

    Attributes:
        order_id: None if it names none that is valid.
        reason: of a dead letter; else empty.
    """

    order_id: str | None
    place: Location
    reason: str = ""


Page = list[OrderLocation]


class QueueScanner:
    """One look at a queue, on its way from the stream to the dead letters.

    While workers run, entries move: from the stream to the retry set and back to the stream's end, from there to the dead
    letters. `queued` reads the stream to its end, the retry set, and what has come into the stream meanwhile, so what
    moves once on the way is seen. Methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(self, client: Redis, queue: str, group: str) -> None:
        self._client = client
        self._keys = Keys.of(queue, group)
        self._group = group
        self._after: bytes | str = "-"

    async def queued(self) -> AsyncIterator[Page]:
        """Everything on its way; what moves meanwhile may come twice."""
        self._after = "-"
        for part in (self._stream, self._retries, self._stream):
            async for page in part():
                yield page

    async def dead(self) -> AsyncIterator[Page]:
        """All dead letters."""
        after: bytes | str = "-"
        while page := await self._range(self._keys.dead, after):
            after = b"(" + page[-1][0]
            yield [
                OrderLocation(_order_id(fields), Location.DEAD, fields.get(b"reason", b"").decode(errors="replace"))
                for _, fields in page
            ]

    async def _stream(self) -> AsyncIterator[Page]:
        """What is in the stream after where the last call ended, and is not finished."""
        delivered = await self._last_delivered()
        while page := await self._range(self._keys.stream, self._after):
            held = await self._held(page[0][0], page[-1][0])
            settled = await self._settled([entry_id for entry_id, _ in page if entry_id not in held])
            self._after = b"(" + page[-1][0]
            # What was delivered and is neither held nor settled has left the pending list without an ack: the sweep puts it back.
            yield [
                OrderLocation(
                    _order_id(fields), Location.WAITING if _number(entry_id) > delivered else Location.PENDING
                )
                for entry_id, fields in page
                if entry_id not in settled
            ]

    async def _retries(self) -> AsyncIterator[Page]:
        cursor: Any = 0
        packed: Any
        while True:
            with translated():
                cursor, packed = await self._client.hscan(self._keys.retry_entries, cursor, count=_PAGE)
                times = await self._client.zmscore(self._keys.retry, list(packed)) if packed else []
            # Without a time it would never come back; or it just has.
            due = [fields for fields, time in zip(packed.values(), times, strict=True) if time is not None]
            yield [OrderLocation(_order_id(_fields(fields)), Location.RETRYING) for fields in due]
            if not cursor:
                return

    async def _range(self, key: str, after: bytes | str) -> Any:
        with translated():
            return await self._client.xrange(key, min=after, count=_PAGE)

    async def _last_delivered(self) -> tuple[int, int]:
        """The group's position; the very start if there is no group, which is then made from there."""
        with translated():
            groups = await self._client.xinfo_groups(self._keys.stream) if await self._exists() else []
        ours = [group["last-delivered-id"] for group in groups if group["name"] == self._group.encode()]
        return _number(ours[0]) if ours else (0, 0)

    async def _exists(self) -> bool:
        return bool(await self._client.exists(self._keys.stream))

    async def _settled(self, entry_ids: list[bytes]) -> set[bytes]:
        """Those that are finished, and only kept for other groups."""
        if not entry_ids:
            return set()
        names = ["{:020d}-{:020d}".format(*_number(entry_id)) for entry_id in entry_ids]
        with translated():
            scores = await self._client.zmscore(self._keys.settled, names)
        return {entry_id for entry_id, score in zip(entry_ids, scores, strict=True) if score is not None}

    async def _held(self, first: bytes, last: bytes) -> set[bytes]:
        """The pending entries within a page; there may be more of them than the page has, where the stream was trimmed."""
        held: set[bytes] = set()
        rows: Any
        while True:
            try:
                with translated():
                    rows = await self._client.xpending_range(self._keys.stream, self._group, first, last, _PAGE)
            except NoGroup:
                return held
            held.update(row["message_id"] for row in rows)
            if len(rows) < _PAGE:
                return held
            first = b"(" + rows[-1]["message_id"]


def _order_id(fields: Mapping[bytes, bytes]) -> str | None:
    try:
        return parse_order_id(fields.get(ORDER_ID, b"").decode("ascii"))
    except (InvalidOrderId, UnicodeDecodeError):
        return None


def _number(entry_id: bytes) -> tuple[int, int]:
    milliseconds, _, sequence = entry_id.partition(b"-")
    return int(milliseconds), int(sequence)


def _fields(packed: bytes) -> Mapping[bytes, bytes]:
    """The fields of an entry in the retry set; none, if it is not one, which then becomes a dead letter."""
    try:
        return pairs(unpacked(packed))
    except (msgspec.DecodeError, ValueError):
        return {}
