"""Enqueues calls into the partitions of a queue, each lane by its own group commit, and follows a change of their number.

The orders of a call are divided by partition, and each partition accepts its orders in separate steps. A partition that was closed
accepts none, so they are divided again by the new layout. When the process dies in between, the caller has no response and calls again.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

import msgspec
from redis.asyncio import Redis

from ingest.backoff import call_until_available
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.domain.partitions import Layout
from ingest.queue.produce.followed_layout import FollowedLayout
from ingest.queue.produce.order_shares import Listed, claim_of, moved_key, shares_of
from ingest.queue.produce.partition_producer import PartitionProducer, ProducerOptions
from ingest.queue.produce.producer_errors import CLOSED, BacklogFull, QueueClosed
from ingest.queue.produce.submission import submissions
from ingest.queue.redis.server_trouble import reason_to_wait


class CallOptions(msgspec.Struct, frozen=True):
    """How the orders of a call are enqueued.

    Attributes:
        key: The idempotency key.
        express: The lane.
        waits: Whether the call waits through outages and a full backlog.
        coalesce: See `Producer.try_announce`.
        counts_repeats: See `Producer.try_announce`.
    """

    key: str | None
    express: bool
    waits: bool
    coalesce: float = 0.0
    counts_repeats: bool = False


class QueueProducer:
    """Enqueues into one queue.

    Args:
        client: A connection to Redis.
        queue: Name of the whole queue.
        partitions: The number of partitions of a new queue.
        options: The options of the producer. The backlog limit is divided by the number of partitions.
    """

    def __init__(self, client: Redis, queue: str, partitions: int, options: ProducerOptions) -> None:
        self._client = client
        self._layout = FollowedLayout(client, queue, partitions)
        self._options = options
        # By name of the queue, and number of partitions.
        self._producers: dict[tuple[str, int], PartitionProducer] = {}
        self._is_closed = False

    async def submit(self, orders: Listed, call: CallOptions) -> int:
        """Return how many of the orders needed no entry, when Redis has them all.

        Raises:
            IdempotencyKeyReused, QueueRefused: See `GroupCommit.submit`.
            BacklogFull, QueueUnavailable: If the call does not wait. Some of the orders may be in the queue.
        """
        layout = self._layout.ready or await self._found(self._layout.current, call)
        return await self._submit(layout, orders, call)

    async def check_durability(self) -> None:
        """See `Producer.check_durability`."""
        layout = await self._layout.current()
        await _all([self._producer(layout, queue).check_durability() for queue in layout.current])

    async def close(self) -> None:
        """Stop. Calls that still wait raise `QueueUnavailable`."""
        self._is_closed = True
        await self._layout.close()
        for producer in self._producers.values():
            await producer.close()

    async def _submit(self, layout: Layout, orders: Listed, call: CallOptions) -> int:
        if layout.partitions == 1:
            return await self._submit_to(layout, layout.queue, orders, call)
        shares = shares_of(layout, orders, call.key)
        if call.key is not None and len(shares) > 1:
            queue, claim = claim_of(layout, orders, call.key)
            try:
                await self._producer(layout, queue).submit([claim], express=call.express, waits=call.waits)
            except QueueClosed:
                return await self._submit(await self._layout_after(layout, call), orders, call)
        calls = [
            self._submit_to(layout, share.queue, share.orders, msgspec.structs.replace(call, key=share.key))
            for share in shares
        ]
        return await calls[0] if len(calls) == 1 else sum(await _all(calls))

    async def _submit_to(self, layout: Layout, queue: str, orders: Listed, call: CallOptions) -> int:
        producer = self._producer(layout, queue)
        parts = submissions(orders, call.key, producer.most, call.coalesce, counts_repeats=call.counts_repeats)
        try:
            return await producer.submit(parts, express=call.express, waits=call.waits)
        except QueueClosed as closed:
            later = await self._layout_after(layout, call)
            moved = msgspec.structs.replace(call, key=moved_key(call.key))
            return closed.duplicates + await self._submit(later, closed.orders, moved)

    def _producer(self, layout: Layout, queue: str) -> PartitionProducer:
        if self._is_closed:
            raise QueueUnavailable(CLOSED)
        place = (queue, layout.partitions)
        if (producer := self._producers.get(place)) is None:
            producer = self._producers[place] = PartitionProducer(self._client, queue, layout.partitions, self._options)
        return producer

    async def _layout_after(self, layout: Layout, call: CallOptions) -> Layout:
        return await self._found(partial(self._layout.other_than, layout), call)

    async def _found(self, find: Callable[[], Coroutine[Any, Any, Layout]], call: CallOptions) -> Layout:
        if not call.waits:
            return await find()
        reasons: set[str] = set()

        def on_failure(error: BaseException) -> None:
            if (reason := reason_to_wait(error)) not in reasons:
                reasons.add(reason)
                self._options.on_wait(reason)

        def passes(error: BaseException) -> bool:
            return _passes(error) and not self._is_closed

        return await call_until_available(find, passes=passes, on_failure=on_failure)


def _passes(error: BaseException) -> bool:
    return isinstance(error, QueueUnavailable) and not isinstance(error, UserError)


async def _all(calls: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
    """Wait for all calls, and raise the error that is most important to the caller: first those that do not pass by themselves."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    if errors := [each for each in results if isinstance(each, BaseException)]:
        raise min(
            errors, key=lambda error: (_passes(error) or isinstance(error, BacklogFull), isinstance(error, BacklogFull))
        )
    return results
