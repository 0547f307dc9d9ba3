"""POST /v1/orders on a real Redis."""

from collections.abc import AsyncIterator

import pytest
from http_api import Api, running_api
from redis.asyncio import Redis

from ingest.queue.connection import control_client
from ingest.queue.keys import Keys


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with control_client(redis_url) as client:
        yield client


@pytest.fixture
async def api(redis_url: str, queue_name: str) -> AsyncIterator[Api]:
    async with running_api(redis_url, "postgresql://127.0.0.1:1/none", queue_name) as api:
        yield api


async def queued(redis: Redis, queue: str, lane: str = "stream") -> list[dict[bytes, bytes]]:
    return [fields for _, fields in await redis.xrange(getattr(Keys.of(queue), lane))]


async def test_announced_orders_are_in_the_queue_when_the_answer_comes(api: Api, redis: Redis, queue_name: str) -> None:
    status, answer = await api.post("/v1/orders", json={"order_ids": ["1", "2"]})

    assert (status, answer) == (202, {"accepted": 2, "duplicates": 0})
    assert [fields[b"order_id"] for fields in await queued(redis, queue_name)] == [b"1", b"2"]


async def test_source_and_express_reach_the_queue(api: Api, redis: Redis, queue_name: str) -> None:
    await api.post("/v1/orders", json={"order_ids": ["1"], "source": "billing", "express": True})

    assert await queued(redis, queue_name) == []
    (entry,) = await queued(redis, queue_name, "express")
    assert entry[b"source"] == b"billing"


async def test_one_invalid_id_is_named_and_nothing_is_queued(api: Api, redis: Redis, queue_name: str) -> None:
    status, answer = await api.post("/v1/orders", json={"order_ids": ["1", "a b"]})

    assert (status, answer["code"], answer["index"]) == (422, "invalid_order_id", 1)
    assert await queued(redis, queue_name) == []
