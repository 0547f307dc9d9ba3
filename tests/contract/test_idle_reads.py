"""Idle consumers of a process share one blocking read, and each gets its entries as promptly as with its own read."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack

import pytest
from consumers import Consumer
from proxy import Proxy
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.errors import QueueUnavailable
from ingest.queue.consume.queue_connections import QueueConnections

GROUP = "ingest"
BLOCK = 0.5


async def join(stack: AsyncExitStack, connections: QueueConnections, *queues: str) -> list[Consumer]:
    consumers = []
    for queue in queues:
        consumer = await stack.enter_async_context(Consumer.sharing(connections, queue, GROUP, "one", BLOCK))
        await consumer.ensure_group()
        consumers.append(consumer)
    return consumers


@pytest.fixture
async def consumers(redis_url: str, queue_name: str) -> AsyncIterator[list[Consumer]]:
    """The consumers of five sources in one process, which are idle."""
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(QueueConnections.open(redis_url, BLOCK))
        consumers = await join(stack, connections, *(f"{queue_name}/shop-{number}" for number in range(5)))
        await become_idle(consumers)
        yield consumers


async def read_all(consumers: Sequence[Consumer], count: int = 5) -> list[list[Delivery]]:
    return await asyncio.gather(*(consumer.read(count, BLOCK) for consumer in consumers))


async def become_idle(consumers: Sequence[Consumer]) -> None:
    for _ in range(3):
        assert await read_all(consumers) == [[]] * len(consumers)


async def reads(redis: Redis) -> int:
    stats = await redis.info("commandstats")
    return int(stats.get("cmdstat_xreadgroup", {"calls": 0})["calls"])


async def is_waiting_together(redis: Redis) -> bool:
    blocked = [client for client in await redis.client_list() if "b" in client["flags"]]
    return len(blocked) == 1


async def test_idle_consumers_wait_in_one_read(redis: Redis, consumers: list[Consumer]) -> None:
    before = await reads(redis)

    for _ in range(3):
        assert await read_all(consumers) == [[]] * 5

    assert await reads(redis) - before == 3


async def test_an_entry_goes_to_its_consumer_immediately_while_the_others_go_on_waiting(
    redis: Redis, consumers: list[Consumer]
) -> None:
    reading = [asyncio.create_task(consumer.read(5, BLOCK)) for consumer in consumers]
    await eventually(lambda: is_waiting_together(redis))

    await redis.xadd(consumers[3].access.keys.stream, {"order_id": "a"})
    done, waiting = await asyncio.wait(reading, return_when=asyncio.FIRST_COMPLETED)

    assert done == {reading[3]}
    assert [delivery.order_id for delivery in await reading[3]] == ["a"]
    assert len(waiting) == 4
    await redis.xadd(consumers[0].access.keys.express, {"order_id": "b"})
    assert [delivery.order_id for delivery in await reading[0]] == ["b"]
    assert [await reading[number] for number in (1, 2, 4)] == [[], [], []]


async def test_a_consumer_that_comes_later_gets_its_entry_while_the_others_go_on_waiting(
    redis: Redis, consumers: list[Consumer]
) -> None:
    reading = [asyncio.create_task(consumer.read(5, BLOCK)) for consumer in consumers[1:]]
    await eventually(lambda: is_waiting_together(redis))
    late = asyncio.create_task(consumers[0].read(5, BLOCK))

    await redis.xadd(consumers[0].access.keys.stream, {"order_id": "a"})

    assert [delivery.order_id for delivery in await late] == ["a"]
    assert not any(task.done() for task in reading)
    await asyncio.gather(*reading)


async def test_a_consumer_that_comes_late_joins_the_read_of_the_others(redis: Redis, consumers: list[Consumer]) -> None:
    async def streams_of_reads() -> list[int]:
        """How many streams each read of a round names in which the last consumer is late."""
        async with redis.monitor() as monitor:
            reading = [asyncio.create_task(consumer.read(5, BLOCK)) for consumer in consumers[1:]]
            await eventually(lambda: is_waiting_together(redis))
            await asyncio.gather(*reading, consumers[0].read(5, BLOCK))
            await redis.echo("end")
            counts = []
            async for each in monitor.listen():
                words = each["command"].split()
                if words[0] == "ECHO":
                    return counts
                if words[0] == "XREADGROUP":
                    counts.append(words.count(">"))
        raise AssertionError("the server has ended the monitor")

    async def has_joined() -> bool:
        # On a busy machine, a round may end before the last consumer comes.
        counts = await streams_of_reads()
        return counts[0] == 8 and counts[-1] == 10 and 2 not in counts

    await eventually(has_joined)


async def test_no_consumer_gets_more_than_it_has_room_for(redis: Redis, consumers: list[Consumer]) -> None:
    reading = [asyncio.create_task(each.read(count, BLOCK)) for count, each in enumerate(consumers, start=2)]
    await eventually(lambda: is_waiting_together(redis))
    async with redis.pipeline(transaction=True) as together:
        for number in range(20):
            together.xadd(consumers[0].access.keys.stream, {"order_id": str(number)})
        await together.execute()

    assert len(await reading[0]) == 2
    assert await redis.zcard(consumers[0].access.keys.released) == 0, "none was read that has no room"
    await asyncio.gather(*reading)


async def test_a_group_that_is_gone_is_created_again_without_disturbing_the_others(
    redis: Redis, consumers: list[Consumer]
) -> None:
    lost, *others = consumers
    await redis.delete(lost.access.keys.stream)

    assert await read_all(consumers) == [[]] * 5
    for consumer in consumers:
        await redis.xadd(consumer.access.keys.stream, {"order_id": "a"})

    assert [len(found) for found in await read_all(others)] == [1] * 4
    assert len(await lost.read(5, BLOCK)) == 1


async def test_a_queue_that_cannot_be_read_fails_for_its_own_consumer_only(
    redis: Redis, consumers: list[Consumer]
) -> None:
    bad, *others = consumers
    await redis.set(bad.access.keys.stream, "no stream")
    for consumer in others:
        await redis.xadd(consumer.access.keys.stream, {"order_id": "a"})

    failed, *found = await asyncio.gather(*(each.read(5, BLOCK) for each in consumers), return_exceptions=True)

    assert isinstance(failed, QueueUnavailable)
    assert [len(each) for each in found if isinstance(each, list)] == [1] * 4
    await become_idle(others)
    before = await reads(redis)
    assert await read_all(others) == [[]] * 4
    assert await reads(redis) - before == 1, "the others wait together again"


async def test_entries_of_a_lost_reply_are_found_under_the_names_of_their_consumers(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    host, _, rest = redis_url.rpartition("@")
    port = int(rest.rpartition(":")[2].partition("/")[0])
    with Proxy(port) as network:
        async with AsyncExitStack() as stack:
            url = f"{host}@127.0.0.1:{network.port}/0"
            connections = await stack.enter_async_context(QueueConnections.open(url, BLOCK))
            consumers = await join(stack, connections, *(f"{queue_name}/shop-{number}" for number in range(3)))
            await become_idle(consumers)
            reading = asyncio.gather(*(each.read(5, BLOCK) for each in consumers), return_exceptions=True)
            await eventually(lambda: is_waiting_together(redis))
            network.freeze()
            await redis.xadd(consumers[1].access.keys.stream, {"order_id": "a"})
            network.cut()

            assert [type(each) for each in await reading] == [QueueUnavailable] * 3

            network.thaw()
            found = [await each.claim_own(5, [], counted=False) for each in consumers]
            assert [[delivery.order_id for delivery in each] for each in found] == [[], ["a"], []]


async def test_a_consumer_that_has_ended_is_not_read_for(redis: Redis, consumers: list[Consumer]) -> None:
    ended, *others = [asyncio.create_task(consumer.read(5, BLOCK)) for consumer in consumers]
    await eventually(lambda: is_waiting_together(redis))
    ended.cancel()
    await redis.xadd(consumers[1].access.keys.stream, {"order_id": "a"})
    assert len(await others[0]) == 1
    await eventually(lambda: is_waiting_together(redis))

    await redis.xadd(consumers[0].access.keys.stream, {"order_id": "b"})
    await asyncio.gather(*others)

    [group] = await redis.xinfo_groups(consumers[0].access.keys.stream)
    assert group["pending"] == 0


async def test_a_consumer_that_stays_idle_closes_its_own_connection_until_it_needs_it(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    block = 0.1
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(QueueConnections.open(redis_url, block))
        consumers = await join(stack, connections, f"{queue_name}/a", f"{queue_name}/b")
        await asyncio.gather(*(consumer.read(5, block) for consumer in consumers))
        busy = len(await redis.client_list())

        async def are_closed() -> bool:
            await asyncio.gather(*(consumer.read(5, block) for consumer in consumers))
            # The reads of both together take one.
            return len(await redis.client_list()) == busy - 1

        await eventually(are_closed)
        for order_id in ("a", "b"):
            await redis.xadd(consumers[0].access.keys.stream, {"order_id": order_id})
            assert [delivery.order_id for delivery in await consumers[0].read(1, block)] == [order_id]


async def test_a_process_with_one_source_reads_for_as_long_as_it_asks(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    async with AsyncExitStack() as stack:
        connections = await stack.enter_async_context(QueueConnections.open(redis_url, BLOCK))
        [consumer] = await join(stack, connections, queue_name)
        before = await reads(redis)

        for _ in range(2):
            began = asyncio.get_running_loop().time()
            assert await consumer.read(5, BLOCK) == []
            assert asyncio.get_running_loop().time() - began >= BLOCK - 0.01

        assert await reads(redis) - before == 2
