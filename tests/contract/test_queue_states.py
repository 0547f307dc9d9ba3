"""The states of several queues, read in one round trip from each real server."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.source_name import queue_of
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.queue_states import read_states
from ingest.queue.redis.connection import QueueRefused, control_client

pytestmark = pytest.mark.topologies

SOURCES = ("shop-de", "shop-fr", "warehouse")


@pytest.fixture
async def queues(redis: Redis, queue_name: str) -> AsyncIterator[list[str]]:
    """The queues of three sources, with one, two and three entries."""
    queues = [queue_of(queue_name, source) for source in SOURCES]
    for count, queue in enumerate(queues, 1):
        for number in range(count):
            await redis.xadd(Keys.of(queue).stream, {"order_id": f"order-{number}"})
    yield queues
    for queue in queues:
        await redis.delete(Keys.of(queue).stream, Keys.of(queue).retry)


async def test_each_queue_has_its_own_state(redis_url: str, queues: list[str]) -> None:
    async with control_client(redis_url) as client:
        states = await read_states(client, queues, "ingest")

    assert [state.depth for state in states if isinstance(state, QueueState)] == [1, 2, 3]


async def test_a_queue_whose_keys_are_of_another_type_hides_no_other(
    redis_url: str, redis: Redis, queues: list[str]
) -> None:
    await redis.set(Keys.of(queues[1]).retry, "text")

    async with control_client(redis_url) as client:
        first, second, third = await read_states(client, queues, "ingest")

    assert isinstance(second, QueueRefused)
    assert "WRONGTYPE" in str(second)
    assert [state.depth for state in (first, third) if isinstance(state, QueueState)] == [1, 3]


async def test_the_states_are_read_after_redis_has_forgotten_its_scripts(
    redis_url: str, redis: Redis, queues: list[str]
) -> None:
    async with control_client(redis_url) as client:
        await read_states(client, queues, "ingest")
        await redis.script_flush()

        states = await read_states(client, queues, "ingest")

    assert [state.depth for state in states if isinstance(state, QueueState)] == [1, 2, 3]


async def test_without_a_source_redis_is_sent_no_command(redis_url: str) -> None:
    async with control_client(redis_url) as client:
        assert await read_states(client, [], "ingest") == []
