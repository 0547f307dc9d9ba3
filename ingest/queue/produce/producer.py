"""Enqueues orders: their IDs, or the orders themselves.

When a call returns, Redis has its orders. When it fails, or the process dies before that, the caller may not know, and enqueues them again.
An order that is enqueued twice is fetched twice and stored once. Under one idempotency key, it is queued once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from redis.asyncio import Redis

from ingest.domain.deliveries.accepted import Accepted, Durability
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.source_name import UNNAMED, parse_source_name, queue_of
from ingest.queue.produce.partitioned_queue import CallOptions, PartitionedQueue
from ingest.queue.produce.producer_errors import BacklogFull, EnqueueTimeout
from ingest.queue.produce.queue_producer import OVERLAPPING, ProducerOptions
from ingest.queue.produce.submission import BATCH, Orders, checked_orders
from ingest.queue.redis.connection import CONTROL_CONNECTIONS, control_client
from ingest.telemetry.tracing.enqueueing import begin_enqueueing
from ingest.telemetry.tracing.port import current_tracing, error_of

__all__ = ["BATCH", "BacklogFull", "Producer", "producer_client"]

IDEMPOTENCY_LIFETIME = 24 * 3600.0
# Must not be shorter than the longest time for which a call is retried, or a record could end before the call.
_SHORTEST_LIFETIME = 60.0


class Producer:
    """Announces orders to one queue.

    Concurrent calls share round trips, so that thousands of tasks may each announce one order. For the tasks of one
    event loop. See `SyncProducer` for threads.

    Args:
        client: a connection to Redis.
        queue: the queue's name.
        partitions: of the queue when it is created. Later, its record in Redis counts.
        backlog_limit: entries of a lane above which nothing is accepted, of which each partition takes an equal share. 0 for no limit.
        durability: what is certain when a call returns: that Redis has its orders in memory, has them on its disk, or that
            `replicas` replicas have them in memory.
        replicas: with `Durability.REPLICATED`.
        idempotency_lifetime: seconds for which an idempotency key is remembered, at least 60.
        on_wait: called with the reason why `enqueue` waits: Redis is unavailable or out of memory, or the backlog is at its
            limit. Called once for each reason.
    """

    def __init__(
        self,
        client: Redis,
        queue: str,
        *,
        partitions: int = 1,
        backlog_limit: int = 0,
        durability: Durability = Durability.MEMORY,
        replicas: int = 1,
        idempotency_lifetime: float = IDEMPOTENCY_LIFETIME,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        options = ProducerOptions(backlog_limit, durability, replicas, checked_lifetime(idempotency_lifetime), on_wait)
        self._queue = PartitionedQueue(client, queue, partitions, options)
        self._name = queue
        self._tracing = current_tracing()

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        queue: str = "orders",
        *,
        source: str = UNNAMED,
        partitions: int = 1,
        backlog_limit: int = 0,
        durability: Durability = Durability.MEMORY,
        replicas: int = 1,
        idempotency_lifetime: float = IDEMPOTENCY_LIFETIME,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> AsyncIterator[Self]:
        """A producer with its own connections, which connects when it is first used.

        With several sources, `source` is the name of the orders' source, and `queue` the value of `INGEST_STREAM`. The other
        arguments are those of `Producer`.
        """
        own_queue = queue_of(queue, source and parse_source_name(source))
        async with producer_client(url, durability) as client:
            producer = cls(
                client,
                own_queue,
                partitions=partitions,
                backlog_limit=backlog_limit,
                durability=durability,
                replicas=replicas,
                idempotency_lifetime=idempotency_lifetime,
                on_wait=on_wait,
            )
            try:
                yield producer
            finally:
                await producer.close()

    async def check_durability(self) -> None:
        """Return if this Redis can confirm what `durability` promises, as shown by a write.

        Raises:
            CannotConfirm: if it cannot. The message gives the reason.
            QueueUnavailable: if Redis cannot be used right now.
        """
        await self._queue.check_durability()

    async def enqueue(
        self,
        orders: Orders,
        *,
        idempotency_key: str | None = None,
        express: bool = False,
        timeout: float | None = None,  # noqa: ASYNC109  what expires here is an error of ours
    ) -> int:
        """Enqueue orders, and return how many when Redis has them all.

        Waits while Redis is unavailable, out of memory, or over the backlog limit. More than 500 orders go in several
        steps, as do those of several partitions. If it is cancelled or times out, the call may have enqueued some of them
        (with a single partition: from the front), or all.

        Args:
            orders: an order ID or `Announcement`, or several.
            idempotency_key: under one key, orders are accepted once, and only confirmed when they are sent again.
            express: whether workers read the orders before those of the main lane.
            timeout: seconds to wait at most. None for as long as it takes.

        Raises:
            InvalidOrderId: before anything is sent.
            InvalidIdempotencyKey: likewise.
            IdempotencyKeyReused: if the key belongs to other orders. With several partitions, it may not be recognized that
                a key of orders of a single partition is used for those of another one.
            EnqueueTimeout: if Redis has not confirmed in time. The orders may or may not have been accepted.
            QueueRefused: if Redis denies access (a credential, a right, a key of another type), or the server is no
                Redis.
        """
        listed = checked_orders(orders, idempotency_key)
        call = CallOptions(idempotency_key, express, waits=True)
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await self._submit(listed, call)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise EnqueueTimeout(
                f"not confirmed within {timeout:g} s: the orders may or may not have been accepted"
            ) from error
        return len(listed)

    async def try_enqueue(self, orders: Orders, *, idempotency_key: str | None = None, express: bool = False) -> int:
        """As `enqueue`, but raise where that would wait. Redis is given a few seconds to answer.

        Raises:
            BacklogFull: if the backlog is at its limit. `retry_after` gives the time to wait.
            QueueUnavailable: if Redis cannot be used right now. `retry_after` gives the time to wait. The orders may or
                may not have been accepted.
        """
        accepted = await self.try_announce(orders, idempotency_key=idempotency_key, express=express)
        return accepted.accepted + accepted.duplicates

    async def try_announce(
        self,
        orders: Orders,
        *,
        idempotency_key: str | None = None,
        express: bool = False,
        coalesce: float = 0.0,
        count_repeats: bool = False,
    ) -> Accepted:
        """As `try_enqueue`, and return how many entries the orders needed.

        Args:
            orders: see `enqueue`.
            idempotency_key: see `enqueue`. A repeated call gets the same result, unless `count_repeats`.
            express: see `enqueue`.
            coalesce: seconds, at most a day, for which an order that is in this lane and that no worker has been given is
                not queued again, for orders without a document.
            count_repeats: whether orders that were announced before, under the same key, count as duplicates. So may those
                of a call whose first reply from Redis was lost.
        """
        listed = checked_orders(orders, idempotency_key)
        call = CallOptions(idempotency_key, express, waits=False, coalesce=coalesce, counts_repeats=count_repeats)
        duplicates = await self._submit(listed, call)
        return Accepted(len(listed) - duplicates, duplicates)

    async def _submit(self, orders: Sequence[str | Announcement], call: CallOptions) -> int:
        """Submit orders, with the trace contexts of those that are traced."""
        trace = begin_enqueueing(self._tracing, orders, self._name)
        if trace is None:
            return await self._queue.submit(orders, call)
        try:
            duplicates = await self._queue.submit(trace.orders, call)
        except BaseException as error:
            trace.end(error_of(error))
            raise
        trace.end()
        return duplicates

    async def close(self) -> None:
        """Stop. Calls that still wait raise `QueueUnavailable`."""
        await self._queue.close()


def producer_client(url: str, durability: Durability = Durability.MEMORY) -> Redis:
    """A client for producers of one process, with the connections that they need for this durability."""
    overlapping = 0 if durability is Durability.MEMORY else 2 * OVERLAPPING
    return control_client(url, CONTROL_CONNECTIONS + overlapping)


def checked_lifetime(lifetime: float) -> float:
    """The lifetime of idempotency keys, if it is long enough."""
    if not lifetime >= _SHORTEST_LIFETIME:
        raise ValueError(f"idempotency_lifetime must be at least {_SHORTEST_LIFETIME:.0f} seconds")
    return lifetime
