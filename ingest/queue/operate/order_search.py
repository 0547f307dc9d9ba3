"""Finds orders in a queue, by their IDs. Changes nothing.

Redis has no index by order. A script searches the entries, in slices of about a millisecond, and returns only the wanted ones. A queue that
fits one slice is read in one step. In a longer queue, the search may miss an entry that moves twice during the search, or is replayed.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import LATEST_MS
from ingest.domain.deliveries.entry_fields import (
    ATTEMPT,
    ATTEMPTS,
    DEAD_AT,
    ENQUEUED_AT,
    ERROR,
    FIRST_ENQUEUED_AT,
    ORDER_ID,
    REASON,
    RETRY_ERROR,
    RETRY_REASON,
)
from ingest.domain.deliveries.queue_state import Lane
from ingest.domain.orders.order_state import DeadEntry, InFlightEntry, QueuedEntry, QueueEntry, RetryEntry
from ingest.queue.layout.entries import moment, pairs, text, time_of, whole_number
from ingest.queue.layout.keys import DEFAULT_GROUP, Keys
from ingest.queue.operate.queue_parts import Progress, QueueParts, ReadLayout
from ingest.queue.redis.connection import replies, translated
from ingest.queue.redis.scripts import load

# Entries of one slice: a millisecond or two of Redis' time.
_SLICE = 500
# For one search. A script accepts no more than about 8,000 arguments, on some servers 4,000.
MOST_ORDERS = 1000
# The part to begin with, and the positions in the main lane, the express lane, the retry set and the dead letters.
_BEGINNING = (1, "-", "-", "0", "-")
_WITHOUT_LANES = (1, "passed", "passed", "0", "-")
# The index of the position of each part. The lanes are read twice.
_POSITION_OF = {1: 1, 2: 2, 3: 3, 4: 2, 5: 1, 6: 4}

# Read from a retry by name.
_OF_RETRY = frozenset((b"id", b"due", ORDER_ID, ENQUEUED_AT, ATTEMPT, RETRY_REASON, RETRY_ERROR))


@dataclass(frozen=True, slots=True)
class Searched:
    """The result of a search.

    Attributes:
        entries: the places of each order, by order ID. An order that is not found is left out.
        is_complete: whether all of the queue was searched.
    """

    entries: Mapping[str, Sequence[QueueEntry]]
    is_complete: bool


class OrderSearch:
    """Searches the partitions that may contain an order."""

    def __init__(self, client: Redis, layout: ReadLayout, group: str = DEFAULT_GROUP) -> None:
        self._parts = QueueParts(layout, lambda queue, suffix: PartitionSearch(client, queue, group, id_suffix=suffix))

    async def sizes(self, order_ids: Collection[str]) -> list[int]:
        """How many entries each part of these partitions has. See `PartitionSearch.sizes`."""
        return [size for part, _ in await self._parts.of_orders(order_ids) for size in await part.sizes()]

    async def find(
        self,
        order_ids: Collection[str],
        *,
        limit: int = 0,
        most: int = 0,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> Searched:
        """Find orders, at most `MOST_ORDERS` of them. See `PartitionSearch.find`."""
        entries: dict[str, list[QueueEntry]] = {}
        is_complete, progress = True, Progress(on_progress)
        for part, some in await self._parts.of_orders(order_ids):
            found = await part.find(some, limit=limit, most=most, on_progress=progress.note)
            progress.end_part()
            for order_id, each in found.entries.items():
                entries.setdefault(order_id, []).extend(each)
            is_complete = is_complete and found.is_complete
        return Searched(entries, is_complete)


class PartitionSearch:
    """Searches one queue, and the retries and dead letters of one of its groups. All IDs of entries end with `id_suffix`."""

    def __init__(self, client: Redis, queue: str, group: str = DEFAULT_GROUP, *, id_suffix: str = "") -> None:
        self._client = client
        keys = Keys.of(queue, group)
        express, main = keys.lanes
        self._keys = [main.stream, main.settled, express.stream, express.settled]
        self._keys += [keys.retry, keys.retry_entries, keys.dead]
        self._group = group
        self._id_suffix = id_suffix
        self._find = load(client, "find_orders")

    async def find(
        self,
        order_ids: Collection[str],
        *,
        limit: int = 0,
        most: int = 0,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> Searched:
        """Find orders, at most `MOST_ORDERS` of them.

        Args:
            order_ids: valid order IDs.
            limit: a lane, a retry set or a stream of dead letters with more entries than this is not searched. 0 searches all.
            most: about how many entries of each part are searched, the oldest first in streams. 0 searches all.
            on_progress: called with how many entries were looked at so far.

        Raises:
            QueueUnavailable: if Redis cannot be used now.
        """
        return await self._search(order_ids, _BEGINNING, limit, most, on_progress)

    async def sizes(self) -> list[int]:
        """How many entries each part has: both lanes, the retry set and the dead letters. Errors as for `find`."""
        main, _, express, _, retry, _, dead = self._keys
        with translated():
            async with self._client.pipeline(transaction=False) as pipe:
                pipe.xlen(main)
                pipe.xlen(express)
                pipe.zcard(retry)
                pipe.xlen(dead)
                return list(map(int, await replies(pipe)))

    async def find_retries_and_dead_letters(self, order_ids: Collection[str]) -> Mapping[str, Sequence[QueueEntry]]:
        """As `find`, without the lanes, which may be long. By order ID."""
        return (await self._search(order_ids, _WITHOUT_LANES, 0, 0, lambda _: None)).entries

    async def _search(
        self,
        order_ids: Collection[str],
        beginning: Sequence[Any],
        limit: int,
        most: int,
        on_progress: Callable[[int], None],
    ) -> Searched:
        found: dict[str, dict[tuple[str, bytes], QueueEntry]] = {}
        is_complete, examined, in_part = True, 0, 0
        position = [*beginning]
        while part := position[0]:
            budget = min(_SLICE, most + 1 - in_part) if most else _SLICE
            with translated():
                reply = await self._find(self._keys, [self._group, budget, limit, *position, *order_ids])
                now, *position = reply[:6]
                examined += reply[6]
                in_part = in_part + reply[6] if position[0] == part else 0
                if most and in_part > most:
                    position[_POSITION_OF[part]], in_part = "passed", 0
                is_complete = is_complete and not reply[7]
                for about in map(pairs, reply[8]):
                    entry = _entry(about, now, self._id_suffix)
                    found.setdefault(about[ORDER_ID].decode(), {})[entry.state, about[b"id"]] = entry
            on_progress(examined)
        return Searched({order_id: list(entries.values()) for order_id, entries in found.items()}, is_complete)


def most_of_each(sizes: Collection[int], most: int) -> int:
    """The number for `PartitionSearch.find` with which at most `most` entries of these parts are searched, and all of short parts."""
    rest = most
    for number, size in enumerate(sorted(sizes)):
        share = rest // (len(sizes) - number)
        if size > share:
            return max(1, share)
        rest -= size
    return most


def _entry(about: Mapping[bytes, bytes], now: int, id_suffix: str) -> QueueEntry:
    """The entry that the script returns. Invalid fields of another program are ignored."""
    if about[b"state"] == b"retrying":
        return to_retry(about, id_suffix)
    entry_id = _text(about, b"id") + id_suffix
    added_at = time_of(int(entry_id.partition("-")[0]))
    announced_at = moment(about.get(ENQUEUED_AT)) or added_at
    if about[b"state"] == b"dead":
        announced_at = moment(about.get(FIRST_ENQUEUED_AT)) or announced_at
        dead_at = moment(about.get(DEAD_AT)) or added_at
        attempts = whole_number(about.get(ATTEMPTS), digits=6)
        return DeadEntry(entry_id, announced_at, dead_at, attempts, _text(about, REASON), _text(about, ERROR))
    lane = Lane(_text(about, b"lane"))
    attempt = whole_number(about.get(ATTEMPT), digits=6) or 1
    if about[b"state"] == b"queued":
        return QueuedEntry(entry_id, lane, announced_at, attempt)
    # Redis rounds both times, so that an entry may seem to have been delivered a millisecond before it was added.
    renewed_at = max(added_at, time_of(now - int(about[b"idle"])))
    worker = _text(about, b"worker")
    return InFlightEntry(entry_id, lane, announced_at, attempt, worker, renewed_at, int(about[b"count"]))


def to_retry(about: Mapping[bytes, bytes], id_suffix: str) -> RetryEntry:
    """An entry of the retry set, as scripts return it."""
    # Another program may have written any time, even an infinite one.
    due = int(max(0.0, min(float(about[b"due"]), LATEST_MS)))
    return RetryEntry(
        _text(about, b"id") + id_suffix,
        about[b"id"],
        _text(about, ORDER_ID) or None,
        moment(about.get(ENQUEUED_AT)),
        time_of(due),
        whole_number(about.get(ATTEMPT), digits=6) or 1,
        _text(about, RETRY_REASON),
        _text(about, RETRY_ERROR),
        {name: value for name, value in about.items() if name not in _OF_RETRY},
    )


def _text(about: Mapping[bytes, bytes], name: bytes) -> str:
    return text(about.get(name)) or ""
