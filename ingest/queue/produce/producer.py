"""Enqueues orders: their IDs, or the orders themselves.

When a call returns, Redis has its orders. When it fails, or the process dies before that, the caller may not know, and enqueues them again.
An order that is enqueued twice is fetched twice and stored once. Under one idempotency key, it is queued once.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from redis.asyncio import Redis

from ingest.domain.deliveries.accepted import Accepted, Durability
from ingest.domain.source_name import UNNAMED, parse_source_name, queue_of
from ingest.queue.layout.keys import Keys, LaneKeys
from ingest.queue.produce.drain_rate import Backlog
from ingest.queue.produce.durability import ProvenRun
from ingest.queue.produce.enqueue_script import Destination, EnqueueScript
from ingest.queue.produce.group_commit import GroupCommit
from ingest.queue.produce.overlapping_commit import OverlappingCommit
from ingest.queue.produce.producer_errors import BacklogFull, EnqueueTimeout
from ingest.queue.produce.proofs import Proofs
from ingest.queue.produce.submission import BATCH, Orders, Submission, most_in_a_step, submissions
from ingest.queue.redis.connection import CONTROL_CONNECTIONS, control_client

__all__ = ["BATCH", "BacklogFull", "Producer", "producer_client"]

IDEMPOTENCY_LIFETIME = 24 * 3600.0
# Must not be shorter than the longest time for which a call is retried, or a record could end before the call.
_SHORTEST_LIFETIME = 60.0
# Batches of a lane that concurrently wait for a disk or a replica. Each uses a connection.
_OVERLAPPING = 8


class Producer:
    """Announces orders to one queue.

    Concurrent calls share round trips, so that thousands of tasks may each announce one order. For the tasks of one
    event loop. See `SyncProducer` for threads.

    Args:
        client: a connection to Redis.
        queue: the queue's name.
        backlog_limit: entries of a lane above which nothing is accepted. 0 for no limit.
        durability: what is certain when a call returns: that Redis has its orders in memory, has them on its disk, or that
            `replicas` replicas have them in memory.
        replicas: with `Durability.REPLICATED`.
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
        durability: Durability = Durability.MEMORY,
        replicas: int = 1,
        idempotency_lifetime: float = IDEMPOTENCY_LIFETIME,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._client = client
        self._keys = Keys.of(queue)
        self._limit = backlog_limit
        self._lifetime = checked_lifetime(idempotency_lifetime)
        self._on_wait = on_wait
        self._most = most_in_a_step(backlog_limit)
        self._proofs = Proofs(client, f"{self._keys.records}confirmed", durability, replicas)
        name = secrets.token_hex(12)
        express, main = self._keys.lanes
        self._main = self._lane(main, name)
        self._express = self._lane(express, f"{name}:express")

    def _lane(self, lane: LaneKeys, name: str) -> GroupCommit:
        to = Destination(self._keys, lane, self._limit, self._lifetime)
        backlog = Backlog(self._client, lane.stream)
        if self._proofs.is_trivial:
            script = EnqueueScript(self._client, to, name, backlog)
            return GroupCommit(script.add, most=self._most, limit=self._limit, on_wait=self._on_wait)
        run = ProvenRun(self._client, self._proofs.find)
        scripts = [EnqueueScript(self._client, to, f"{name}:{slot}", backlog, run) for slot in range(_OVERLAPPING)]
        adds = [script.add for script in scripts]
        return OverlappingCommit(adds, most=self._most, limit=self._limit, on_wait=self._on_wait)

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        queue: str = "orders",
        *,
        source: str = UNNAMED,
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
        await self._proofs.check()

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
        steps. If it is cancelled or times out, the call may have enqueued some of them from the front, or all.

        Args:
            orders: an order ID or `Announcement`, or several.
            idempotency_key: under one key, orders are accepted once, and only confirmed when they are sent again.
            express: whether workers read the orders before those of the main lane.
            timeout: seconds to wait at most. None for as long as it takes.

        Raises:
            InvalidOrderId: before anything is sent.
            InvalidIdempotencyKey: likewise.
            IdempotencyKeyReused: if the key belongs to other orders.
            EnqueueTimeout: if Redis has not confirmed in time. The orders may or may not have been accepted.
            QueueRefused: if Redis refuses us (a credential, a right, a key of another type), or what answers is no
                Redis.
        """
        parts = submissions(orders, idempotency_key, self._most)
        lane = self._express if express else self._main
        limit = asyncio.timeout(timeout)
        try:
            async with limit:
                await self._each(lane.submit, parts)
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
        lane = self._express if express else self._main
        parts = submissions(orders, idempotency_key, self._most, coalesce, counts_repeats=count_repeats)
        duplicates = await self._each(lane.try_submit, parts)
        return Accepted(sum(len(part.orders) for part in parts) - duplicates, duplicates)

    async def _each(self, submit: Callable[[Submission], Coroutine[Any, Any, int]], parts: Sequence[Submission]) -> int:
        """Submit all parts, in their order, and return how many orders needed no entry."""
        if self._proofs.is_trivial:
            return sum([await submit(part) for part in parts])
        # One after the other, each would wait for the disk.
        begun: deque[asyncio.Task[int]] = deque()
        duplicates = 0
        try:
            for part in parts:
                if len(begun) == _OVERLAPPING:
                    duplicates += await begun.popleft()
                begun.append(asyncio.create_task(submit(part)))
            while begun:
                duplicates += await begun.popleft()
        finally:
            for task in begun:
                task.cancel()
            await asyncio.gather(*begun, return_exceptions=True)
        return duplicates

    async def close(self) -> None:
        """Stop. Calls that still wait raise `QueueUnavailable`."""
        await self._main.close()
        await self._express.close()


def producer_client(url: str, durability: Durability = Durability.MEMORY) -> Redis:
    """A client for producers of one process, with the connections that they need for this durability."""
    overlapping = 0 if durability is Durability.MEMORY else 2 * _OVERLAPPING
    return control_client(url, CONTROL_CONNECTIONS + overlapping)


def checked_lifetime(lifetime: float) -> float:
    """The lifetime of idempotency keys, if it is long enough."""
    if not lifetime >= _SHORTEST_LIFETIME:
        raise ValueError(f"idempotency_lifetime must be at least {_SHORTEST_LIFETIME:.0f} seconds")
    return lifetime
