"""The one script that adds orders to a stream. It maps a batch of submissions to its result."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.queue.layout.keys import Keys, LaneKeys
from ingest.queue.produce.drain_rate import UNKNOWN, Backlog
from ingest.queue.produce.submission import Submission
from ingest.queue.redis.connection import QueueFull, translated
from ingest.queue.redis.scripts import load

_NO_ROOM = -1
_CLOSED = -2
_REFUSED = -1
# From here downwards, these are replies to earlier calls with the same key.
_REPEATED = -2


@dataclass(frozen=True, slots=True)
class Added:
    """The batch is in the stream, whether it was added now or before.

    Attributes:
        refused: Submissions whose key belongs to other orders.
        duplicates: How many orders of a submission needed no entry, because an earlier one still waits. None if it is not named.
    """

    refused: frozenset[int]
    duplicates: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoRoom:
    """No order was added, because the backlog would have exceeded its limit.

    Attributes:
        room: How many orders would fit.
        needed: How many orders of a submission need an entry. All, if it is not named.
        retry_after: Seconds after which to try again.
    """

    room: int
    needed: Mapping[int, int] = field(default_factory=dict)
    retry_after: float = UNKNOWN


@dataclass(frozen=True, slots=True)
class Closed:
    """No order was added, because the queue belongs to a former partition."""


# Runs a script, and returns its reply when its writes are as durable as required. Calls the function as soon as it has written.
Run = Callable[[AsyncScript, Sequence[str], Sequence[Any], Callable[[], None]], Awaitable[Any]]


async def run_in_memory(
    script: AsyncScript, keys: Sequence[str], arguments: Sequence[Any], _on_reply: Callable[[], None]
) -> Any:
    """Run a script, without further requirements."""
    return await script(keys, arguments)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where a script adds orders, and under which conditions.

    Attributes:
        limit: The backlog limit, or 0 for none.
        lifetime: Seconds for which an idempotency key is remembered.
        partitions: The number of partitions.
    """

    keys: Keys
    lane: LaneKeys
    limit: int
    lifetime: float
    partitions: int


class EnqueueScript:
    """Adds batches to one stream, for one producer, whose name no other producer uses for this stream."""

    def __init__(
        self, client: Redis, destination: Destination, producer: str, backlog: Backlog, run: Run = run_in_memory
    ) -> None:
        self._to = destination
        self._producer = producer
        self._backlog = backlog
        self._run = run
        self._lifetime = round(destination.lifetime * 1000)
        self._script = load(client, "enqueue")

    async def add(
        self, number: int, batch: Sequence[Submission], on_reply: Callable[[], None]
    ) -> Added | NoRoom | Closed:
        """Add a batch unless it has the number of the last one. After `QueueUnavailable` it may have been added.

        If durability is required, `on_reply` is called when it is in the stream, and it returns when that is confirmed.
        """
        try:
            return await self._add(number, batch, on_reply)
        except QueueFull as full:
            full.retry_after = await self._backlog.retry_after(sum(len(submission.orders) for submission in batch))
            raise

    async def _add(
        self, number: int, batch: Sequence[Submission], on_reply: Callable[[], None]
    ) -> Added | NoRoom | Closed:
        others, to = _others(batch), self._to
        keys = [to.lane.stream, f"{to.keys.records}{self._producer}", to.keys.clock, to.keys.pushed]
        orders = [order for submission in batch if submission.is_plain for order in submission.orders]
        arguments = [self._to.limit, self._producer, number, self._lifetime, to.partitions, len(orders), *orders]
        for index in others:
            keys += self._keys(batch[index])
            arguments += [batch[index].digest, batch[index].coalesce, len(batch[index].orders), *batch[index].orders]
        with translated():
            first, *answers = await self._run(self._script, keys, arguments, on_reply)
            if first == _CLOSED:
                return Closed()
            if first == _NO_ROOM:
                return await self._no_room(batch, answers[0], dict(zip(others, answers[1:], strict=True)))
            return _added(batch, dict(zip(others, answers, strict=True)))

    def _keys(self, submission: Submission) -> list[str]:
        keys = [] if submission.key is None else [f"{self._to.keys.records}idempotency:{submission.key}"]
        for order_id in submission.waiting:
            keys += (f"{self._to.lane.waiting}{order_id}", self._to.keys.version_of(order_id))
        return keys

    async def _no_room(self, batch: Sequence[Submission], room: int, needed: Mapping[int, int]) -> NoRoom:
        wanted = sum(needed.get(index, len(submission.orders)) for index, submission in enumerate(batch))
        return NoRoom(room, needed, await self._backlog.retry_after(wanted - room))


def _others(batch: Sequence[Submission]) -> list[int]:
    """The submissions that are not plain. Those without a key come first, and share the batch's number with the plain ones."""
    found = [index for index, submission in enumerate(batch) if not submission.is_plain]
    return sorted(found, key=lambda index: batch[index].key is not None)


def _added(batch: Sequence[Submission], added: Mapping[int, int]) -> Added:
    refused = frozenset(index for index, count in added.items() if count == _REFUSED)
    duplicates = {
        index: len(batch[index].orders) - _told(batch[index], count)
        for index, count in added.items()
        if index not in refused
    }
    return Added(refused, duplicates)


def _told(submission: Submission, count: int) -> int:
    """The number of orders that a submission is reported to have added."""
    if count > _REPEATED:
        return count
    return 0 if submission.counts_repeats else _REPEATED - count
