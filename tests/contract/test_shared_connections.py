"""Consumers of several queues share the connections of their process."""

from contextlib import AsyncExitStack

from consumers import Consumer
from redis.asyncio import Redis

from ingest.queue.consume.queue_connections import QueueConnections

GROUP = "ingest"


async def connections_of(redis: Redis) -> int:
    return len(await redis.client_list()) - 1


async def test_a_further_consumer_adds_at_most_one_connection(redis: Redis, redis_url: str, queue_name: str) -> None:
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(QueueConnections.open(redis_url))

        async def join(number: int) -> Consumer:
            queue = f"{queue_name}/shop-{number}"
            consumer = await stack.enter_async_context(Consumer.sharing(connections, queue, GROUP, "one", 1.0))
            await consumer.ensure_group()
            await redis.xadd(consumer.access.keys.stream, {"order_id": str(number)})
            (delivery,) = await consumer.read(1, 1.0)
            assert delivery.order_id == str(number)
            assert await consumer.ack([delivery.entry]) == 1
            return consumer

        await join(0)
        with_one = await connections_of(redis)
        for number in range(1, 6):
            await join(number)

        assert await connections_of(redis) <= with_one + 5
