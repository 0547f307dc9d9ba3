"""Enqueues order IDs or whole orders.

When a call returns, Redis holds its orders. If the call fails, or the process dies, its orders may or may not be in the queue.
The caller then enqueues them again. An order that is enqueued twice is fetched twice and stored once. With an idempotency key, it
is queued once.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Self

from redis.asyncio import Redis

from ingest.domain.deliveries.accepted import Accepted, Durability
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.source_name import UNNAMED, parse_source_name, queue_of
from ingest.queue.produce.partition_producer import OVERLAPPING, ProducerOptions
from ingest.queue.produce.producer_errors import BacklogFull, EnqueueTimeout
from ingest.queue.produce.queue_producer import CallOptions, QueueProducer
from ingest.queue.produce.submission import BATCH, Orders, checked_orders
from ingest.queue.redis.connection import CONTROL_CONNECTIONS, control_client
from ingest.telemetry.tracing.enqueueing import begin_enqueueing
from ingest.telemetry.tracing.port import current_tracing, error_of

__all__ = ["BATCH", "BacklogFull", "Producer", "producer_client"]

IDEMPOTENCY_LIFETIME = 24 * 3600.0
# Must not be shorter than the longest time for which a call is retried, or a record could end before the call.
_SHORTEST_LIFETIME = 60.0


class Producer:
    """Enqueues orders into one queue, for the tasks of one event loop. For threads, see `SyncProducer`.

    Concurrent calls share round trips, so that thousands of tasks can each enqueue a single order.

    Args:
        client: A connection to Redis.
        queue: The queue's name.
        partitions: The number of partitions of a new queue. An existing queue keeps its own number.
        backlog_limit: The number of entries in a lane above which nothing is accepted, divided among the partitions. 0 means no
            limit.
        durability: The guarantee when a call returns. Redis then holds the orders in memory or on its disk, or `replicas`
            replicas hold them.
        replicas: The number of replicas, with `Durability.REPLICATED`.
        idempotency_lifetime: Seconds for which an idempotency key is remembered, at least 60.
        on_wait: Called once with each reason why `enqueue` waits, such as an outage of Redis or a full backlog.
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
        self._queue = QueueProducer(client, queue, partitions, options)
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
        """Open a producer with its own connections, which connects when you first use it.

        `queue` is the value of `INGEST_STREAM`. With several sources, `source` is the source of the orders. For the other
        arguments, see `Producer`.
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
        """Write to Redis, and return if it can confirm `durability`.

        Raises:
            CannotConfirm: If it cannot. The message contains the reason.
            QueueUnavailable: If Redis cannot be used right now.
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
        """Enqueue orders, and return their number when Redis holds all of them.

        The call waits while Redis is unavailable or out of memory, or the backlog is at its limit. More than 500 orders, and the
        orders of several partitions, are enqueued in several steps. A call that is cancelled or times out may have enqueued
        some or all of its orders, with a single partition from the front.

        Args:
            orders: An order ID or `Announcement`, or several.
            idempotency_key: Orders with the same key are accepted once. A repeated call only confirms them.
            express: Whether workers read the orders before the main lane.
            timeout: The maximum number of seconds to wait, or None for no limit.

        Raises:
            InvalidOrderId: Before anything is sent.
            InvalidIdempotencyKey: Before anything is sent.
            IdempotencyKeyReused: If the key belongs to other orders. A key that was used for an order of another partition may
                not be detected.
            EnqueueTimeout: If Redis has not confirmed in time. The orders may or may not have been accepted.
            QueueRefused: If Redis denies access (a credential, a right, a key of another type), or the server is not Redis.
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
        """Enqueue orders like `enqueue`, but raise an exception instead of waiting. Redis has a few seconds to reply.

        Raises:
            BacklogFull: If the backlog is at its limit. `retry_after` is the time to wait.
            QueueUnavailable: If Redis cannot be used right now. `retry_after` is the time to wait. The orders may or may not
                have been accepted.
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
        """Enqueue orders like `try_enqueue`, and return the number of new entries.

        Args:
            orders: See `enqueue`.
            idempotency_key: See `enqueue`. A repeated call gets the same result, unless `count_repeats`.
            express: See `enqueue`.
            coalesce: Seconds, at most a day, during which an order that still waits in this lane is not queued again. An order
                with a document always is.
            count_repeats: Whether the orders of a repeated call count as duplicates. After a lost reply of Redis, they may count
                as duplicates in the first call.
        """
        listed = checked_orders(orders, idempotency_key)
        call = CallOptions(idempotency_key, express, waits=False, coalesce=coalesce, counts_repeats=count_repeats)
        duplicates = await self._submit(listed, call)
        return Accepted(len(listed) - duplicates, duplicates)

    async def _submit(self, orders: Sequence[str | Announcement], call: CallOptions) -> int:
        """Submit orders with their trace contexts."""
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
