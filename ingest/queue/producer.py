"""Announces orders: takes their IDs, or the orders themselves, into the queue.

When a call returns, Redis has its orders. When it fails, or the process dies before that, the caller may not know and
announces again: an order announced twice is fetched twice and stored once; under one idempotency key it is queued once.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Self

from redis.asyncio import Redis

from ingest.queue.connection import control_client
from ingest.queue.enqueue_script import EnqueueScript
from ingest.queue.group_commit import GroupCommit
from ingest.queue.keys import Keys
from ingest.queue.producer_errors import BacklogFull, EnqueueTimeout
from ingest.queue.submission import BATCH, Orders, submissions

__all__ = ["BATCH", "BacklogFull", "Producer"]

IDEMPOTENCY_LIFETIME = 24 * 3600.0
# Shorter than the longest time for which a call goes on trying, a record could end before the call.
_SHORTEST_LIFETIME = 60.0


class Producer:
    """Announces orders to one queue.

    Concurrent calls share round trips, so that thousands of tasks may each announce one order. For the tasks of one
    event loop; see `SyncProducer` for threads.

    Args:
        client: a connection to Redis.
        queue: the queue's name.
        backlog_limit: entries of a lane above which nothing is accepted; 0 for no limit.
        idempotency_lifetime: seconds for which an idempotency key is remembered, at least 60.
        on_wait: told, in words, why `enqueue` waits: Redis is unavailable or out of memory, or the backlog is at its
            limit. Called once for each reason.
    """

    def __init__(
        self,
        client: Redis,
        queue: str,
        *,
        backlog_limit: int = 0,
        idempotency_lifetime: float = IDEMPOTENCY_LIFETIME,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        lifetime = checked_lifetime(idempotency_lifetime)
        self._most = min(BATCH, backlog_limit) if backlog_limit else BATCH
        keys = Keys.of(queue)
        name = secrets.token_hex(12)

        def lane(stream: str, producer: str) -> GroupCommit:
            script = EnqueueScript(client, keys, stream, producer, limit=backlog_limit, lifetime=lifetime)
            return GroupCommit(script.add, most=self._most, limit=backlog_limit, on_wait=on_wait)

        self._main = lane(keys.stream, name)
        self._express = lane(keys.express, f"{name}:express")

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        queue: str = "orders",
        *,
        backlog_limit: int = 0,
        idempotency_lifetime: float = IDEMPOTENCY_LIFETIME,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> AsyncIterator[Self]:
        """A producer with a connection of its own; connects when it is first used."""
        async with control_client(url) as client:
            producer = cls(
                client,
                queue,
                backlog_limit=backlog_limit,
                idempotency_lifetime=idempotency_lifetime,
                on_wait=on_wait,
            )
            try:
                yield producer
            finally:
                await producer.close()

    async def enqueue(
        self,
        orders: Orders,
        *,
        idempotency_key: str | None = None,
        express: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109  what expires here is an error of ours
    ) -> int:
        """Announce orders; return how many, once Redis has them all.

        Waits while Redis is unavailable, out of memory, or over the backlog limit. More than 500 orders go in several
        steps; cancelled or timed out, the call has announced a number of them from the front.

        Args:
            orders: an order ID or `Announcement`, or several.
            idempotency_key: under one key, orders are accepted once; announced again with it, they are only confirmed.
            express: whether workers are to read the orders before those of the main lane.
            timeout: seconds to wait at most; None: as long as it takes.

        Raises:
            InvalidOrderId: before anything is sent.
            InvalidIdempotencyKey: likewise.
            IdempotencyKeyReused: if the key belongs to other orders.
            EnqueueTimeout: if Redis has not confirmed in time; the orders may or may not have been accepted.
            QueueRefused: if Redis refuses us (a credential, a right, a key of another type), or what answers is no
                Redis.
        """
        parts = submissions(orders, idempotency_key, self._most)
        lane = self._express if express else self._main
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                for part in parts:
                    await lane.submit(part)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise EnqueueTimeout(
                f"not confirmed within {timeout:g} s: the orders may or may not have been accepted"
            ) from error
        return sum(len(part.orders) for part in parts)

    async def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        """As `enqueue`, but raise where that would wait. Redis is given a few seconds to answer.

        Raises:
            BacklogFull: if the backlog is at its limit; `retry_after` says when to try again.
            QueueUnavailable: if Redis cannot be used right now; `retry_after` says when to try again. The orders may or
                may not have been accepted.
        """
        parts = submissions(orders, idempotency_key, self._most)
        lane = self._express if express else self._main
        for part in parts:
            await lane.try_submit(part)
        return sum(len(part.orders) for part in parts)

    async def close(self) -> None:
        """Stop; calls that still wait raise `QueueUnavailable`."""
        await self._main.close()
        await self._express.close()


def checked_lifetime(lifetime: float) -> float:
    """The lifetime of idempotency keys, if it is long enough."""
    if not lifetime >= _SHORTEST_LIFETIME:
        raise ValueError(f"idempotency_lifetime must be at least {_SHORTEST_LIFETIME:.0f} seconds")
    return lifetime
