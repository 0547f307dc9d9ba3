"""Calls that were made before, under their idempotency key, count as duplicates for callers that request it."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from ingest.domain.deliveries.accepted import Accepted
from ingest.domain.deliveries.announcement import Announcement
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import BATCH, Producer
from ingest.queue.produce.producer_errors import IdempotencyKeyReused


@pytest.fixture
async def producer(redis_url: str, queue_name: str) -> AsyncIterator[Producer]:
    async with Producer.connect(redis_url, queue_name) as producer:
        yield producer


@pytest.mark.parametrize("coalesce", [0.0, 60.0])
async def test_a_repeated_call_counts_as_duplicates(
    redis: Redis, keys: Keys, producer: Producer, coalesce: float
) -> None:
    async def call(*orders: str) -> Accepted:
        return await producer.try_announce(orders, idempotency_key="k", coalesce=coalesce, count_repeats=True)

    assert [await call("a", "b") for _ in range(3)] == [Accepted(2, 0), Accepted(0, 2), Accepted(0, 2)]
    with pytest.raises(IdempotencyKeyReused):
        await call("a")
    assert await producer.try_announce(["a", "b"], idempotency_key="k", coalesce=coalesce) == Accepted(2, 0)
    assert await redis.xlen(keys.stream) == 2


async def test_of_concurrent_calls_with_one_key_one_is_no_duplicate(producer: Producer) -> None:
    pushed = Announcement("a", document={"id": "a"})

    results = await asyncio.gather(
        *(producer.try_announce(pushed, idempotency_key="k", count_repeats=True) for _ in range(20))
    )

    assert sorted(result.accepted for result in results) == [0] * 19 + [1]


async def test_a_call_of_several_steps_counts_what_was_announced_before(producer: Producer) -> None:
    names = [f"order-{number}" for number in range(BATCH + 1)]
    await producer.try_announce(names[:BATCH], idempotency_key="k")

    assert await producer.try_announce(names, idempotency_key="k", count_repeats=True) == Accepted(1, BATCH)
