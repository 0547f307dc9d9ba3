"""Consumers of several queues share the connections of their process."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

from consumers import Consumer
from redis.asyncio import Redis
from servers.kinds import Kind
from support import eventually

from ingest.lab.servers.server import free_port
from ingest.queue.consume.queue_connections import QueueConnections

GROUP = "ingest"


async def connections_of(redis: Redis) -> int:
    return len(await redis.client_list()) - 1


async def test_consumers_ack_their_own_entries_when_they_ack_at_the_same_time(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(QueueConnections.open(redis_url))
        consumers, held = [], []
        for number in range(4):
            queue = f"{queue_name}/shop-{number}"
            consumer = await stack.enter_async_context(Consumer.sharing(connections, queue, GROUP, "one", 1.0))
            await consumer.ensure_group()
            for order in range(number):
                await redis.xadd(consumer.access.keys.stream, {"order_id": str(order)})
            consumers.append(consumer)
            held.append([delivery.entry for delivery in await consumer.read(9, 0.0)])

        acked = await asyncio.gather(*(one.ack(entries) for one, entries in zip(consumers, held, strict=True)))

        assert acked == [0, 1, 2, 3]
        assert [await redis.xlen(consumer.access.keys.stream) for consumer in consumers] == [0] * 4


async def test_in_a_cluster_of_one_node_each_consumer_sends_its_own_commands(kind: Kind, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        server = stack.enter_context(
            kind.server(tmp_path / "cluster", cluster_enabled="yes", cluster_port=str(free_port()))
        )
        redis = await stack.enter_async_context(Redis.from_url(server.url))
        await redis.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        await eventually(lambda: is_up(redis))
        connections = await stack.enter_async_context(QueueConnections.open(server.url, 0.2))
        consumers = [
            await stack.enter_async_context(Consumer.sharing(connections, f"orders/shop-{number}", GROUP, "one", 0.2))
            for number in range(3)
        ]
        for consumer in consumers:
            await consumer.ensure_group()

        for _ in range(5):
            await asyncio.gather(*(consumer.heartbeat(6.0) for consumer in consumers))
            await asyncio.gather(*(consumer.read(1, 0.2) for consumer in consumers))

        for consumer in consumers:
            await redis.xadd(consumer.access.keys.stream, {"order_id": "a"})
        held = await asyncio.gather(*(consumer.read(1, 0.2) for consumer in consumers))
        assert [[delivery.order_id for delivery in each] for each in held] == [["a"]] * 3
        acking = (consumer.ack([each.entry]) for consumer, [each] in zip(consumers, held, strict=True))
        assert await asyncio.gather(*acking) == [1] * 3
        refused = (await redis.info("errorstats")).get("errorstat_CROSSSLOT", {"count": 0})["count"]
        assert 1 <= refused <= 3, "each kind of command is tried once"


async def is_up(redis: Redis) -> bool:
    return b"cluster_state:ok" in await redis.execute_command("CLUSTER", "INFO")


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
