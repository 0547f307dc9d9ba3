"""The one script that adds orders to a stream, as a function: a batch of submissions in, what became of it out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redis.asyncio import Redis

from ingest.queue.capabilities import probe
from ingest.queue.connection import translated
from ingest.queue.keys import Keys
from ingest.queue.scripts import load
from ingest.queue.submission import Submission

if TYPE_CHECKING:
    from redis.commands.core import AsyncScript

_NO_ROOM = -1


@dataclass(frozen=True, slots=True)
class Added:
    """The batch is in the stream, whether it was added now or before.

    Attributes:
        refused: which submissions are not, as their key belongs to other orders.
    """

    refused: frozenset[int]


@dataclass(frozen=True, slots=True)
class NoRoom:
    """Nothing was added, as the backlog would have passed its limit.

    Attributes:
        room: how many orders would fit.
    """

    room: int


class EnqueueScript:
    """Adds batches to one stream, for one producer.

    Args:
        client: a connection to Redis.
        keys: the queue's keys.
        stream: the stream's key: that of one of the lanes.
        producer: the producer's name; nobody else adds under it to this stream.
        limit: the backlog limit; 0 for none.
        lifetime: seconds for which an idempotency key is remembered.
    """

    def __init__(self, client: Redis, keys: Keys, stream: str, producer: str, *, limit: int, lifetime: float) -> None:
        self._client = client
        self._keys = keys
        self._stream = stream
        self._producer = producer
        self._limit = limit
        self._lifetime = round(lifetime * 1000)
        self._script: AsyncScript | None = None

    async def add(self, number: int, batch: Sequence[Submission]) -> Added | NoRoom:
        """Add a batch; under a number that was the last one added, nothing.

        Raises:
            QueueUnavailable: if Redis cannot be used right now; the batch may have been added.
            QueueRefused: if Redis refuses us.
        """
        if self._script is None:
            self._script = load(self._client, "enqueue", await probe(self._client, self._keys.probe))
        plain = [index for index, submission in enumerate(batch) if submission.key is None]
        keyed = [index for index, submission in enumerate(batch) if submission.key is not None]
        keys = [self._stream, f"{self._keys.records}{self._producer}"]
        keys += [f"{self._keys.records}idempotency:{batch[index].key}" for index in keyed]
        orders = [order for index in plain for order in batch[index].orders]
        arguments = [self._limit, self._producer, number, self._lifetime, len(orders), *orders]
        for index in keyed:
            arguments += [batch[index].digest, len(batch[index].orders), *batch[index].orders]
        with translated():
            first, *others = await self._script(keys, arguments)
            if first == _NO_ROOM:
                return NoRoom(others[0])
            return Added(frozenset(keyed[position - 1] for position in others))
