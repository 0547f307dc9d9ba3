"""Of many waiting processes, few block in a read, because each announcement wakes all of them. Every order is read."""

import asyncio

from redis.asyncio import Redis
from rehearsals.scale.fleet import Fleet
from support import eventually

from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer

PROCESSES = 100
# 33 of 100 on average, and never twice as many.
MOST_BLOCKED = 64


async def blocked(redis: Redis) -> int:
    return int((await redis.info("clients"))["blocked_clients"])


async def test_of_a_hundred_idle_processes_about_a_third_waits_in_a_read(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    async with Fleet.open(redis_url, queue_name, PROCESSES, block=0.5) as fleet:
        await fleet.send_heartbeats()
        async with fleet.reading():
            waiting = []
            for _ in range(100):
                waiting.append(await blocked(redis))
                await asyncio.sleep(0.03)

    assert 0 < max(waiting) <= MOST_BLOCKED


async def test_an_order_announced_to_an_idle_fleet_is_taken_before_anybody_looks_again(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    async with Fleet.open(redis_url, queue_name, PROCESSES, block=60.0) as fleet:
        await fleet.send_heartbeats()
        async with fleet.reading():
            await eventually(lambda: blocked(redis))
            async with Producer.connect(redis_url, queue_name) as producer:
                await producer.enqueue(["order-1"])

            # Those that poll look again after 45 seconds at the earliest.
            await eventually(lambda: fleet.taken.total() == 1, within=30.0)


async def test_a_backlog_is_worked_on_by_all_processes_also_where_most_of_them_poll(
    redis: Redis, redis_url: str, queue_name: str, keys: Keys
) -> None:
    seconds, _ = await redis.time()
    async with Fleet.open(redis_url, queue_name, 8, block=1.0) as fleet:
        await redis.zadd(keys.alive, {f"elsewhere-{number}": seconds * 1000 + 1e6 for number in range(200)})
        await fleet.send_heartbeats()
        async with fleet.reading(), Producer.connect(redis_url, queue_name) as producer:
            await producer.enqueue(f"order-{number}" for number in range(4000))

            await eventually(lambda: fleet.taken.total() == 4000, within=60.0)

    assert len(fleet.taken) == 8
