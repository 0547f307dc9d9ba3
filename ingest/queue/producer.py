"""Takes order IDs into the stream.

IDs go in batches; each batch is one script that adds all of it or nothing, and makes Redis remember it in the same step. So
a batch whose reply was lost is simply sent again: if it was taken in, Redis says so. When `enqueue` returns, Redis
has the IDs; when the process dies before that, the caller does not know, and sends them again: an order announced
twice is fetched twice and stored once.
"""

import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import count
from typing import TYPE_CHECKING, Self

from redis.asyncio import Redis

from ingest.domain.errors import Unavailable
from ingest.domain.order import parse_order_id
from ingest.queue.capabilities import probe
from ingest.queue.connection import control_client, translated
from ingest.queue.keys import Keys
from ingest.queue.patience import patiently
from ingest.queue.scripts import load

if TYPE_CHECKING:
    from redis.commands.core import AsyncScript

BATCH = 500


class BacklogFull(Unavailable):
    """The backlog is at its limit; workers will make room."""


class Producer:
    """Announces orders to one queue.

    Args:
        client: a connection to Redis.
        queue: the queue's name.
        backlog_limit: entries above which `enqueue` waits; 0 for no limit.
        on_wait: told, in words, why `enqueue` is waiting: Redis is away or full, or the backlog is at its limit.
            Called once for each spell of waiting.
    """

    def __init__(
        self,
        client: Redis,
        queue: str,
        *,
        backlog_limit: int = 0,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._keys = Keys.of(queue)
        self._name = secrets.token_hex(12)
        self._batches = count()
        self._script: AsyncScript | None = None
        self._limit = backlog_limit
        self._batch = min(BATCH, backlog_limit) if backlog_limit else BATCH
        self._on_wait = on_wait

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, url: str, queue: str, *, backlog_limit: int = 0, on_wait: Callable[[str], None] = lambda _: None
    ) -> AsyncIterator[Self]:
        """A producer with a connection of its own."""
        async with control_client(url) as client:
            yield cls(client, queue, backlog_limit=backlog_limit, on_wait=on_wait)

    async def enqueue(self, order_ids: Iterable[str]) -> int:
        """Take in order IDs; return how many, once Redis has them all.

        Waits while Redis is away, out of memory, or over the backlog limit. Cancelled, it has taken in a whole
        number of batches from the front.

        Raises:
            InvalidOrderId: before anything is sent.
            QueueRefused: if Redis refuses us (a credential, a right, a key of another type), or what answers there is none.
        """
        ids = [parse_order_id(order_id) for order_id in order_ids]
        for start in range(0, len(ids), self._batch):
            await self._send(ids[start : start + self._batch])
        return len(ids)

    async def _send(self, batch: Sequence[str]) -> None:
        await patiently(self._on_wait, self._add, next(self._batches), batch)

    async def _add(self, number: int, batch: Sequence[str]) -> None:
        if self._script is None:
            capabilities = await probe(self._client, self._keys.probe)
            self._script = load(self._client, "enqueue_idmp" if capabilities.adds_idempotently else "enqueue")
        keys = [self._keys.stream, f"{self._keys.receipts}{self._name}:{number}"]
        with translated():
            added = await self._script(keys, [self._limit, self._name, number, *batch])
        if added < 0:
            raise BacklogFull(f"the backlog is at its limit of {self._limit:,} orders")
