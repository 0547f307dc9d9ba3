"""A run whose queue does not become empty says what is in it."""

from redis.asyncio import Redis

from chaos.left import left
from chaos.stage import GROUP
from ingest.queue.layout.keys import Keys


async def test_what_is_left_in_a_queue_is_written_down(redis_url: str, queue_name: str) -> None:
    keys = Keys.of(queue_name)
    async with Redis.from_url(redis_url) as redis:
        for lane in keys.lanes:
            await redis.xgroup_create(lane.stream, GROUP, mkstream=True)
        await redis.xadd(keys.stream, {"order_id": "left-behind"})
        await redis.xreadgroup(GROUP, "a-consumer", {keys.stream: ">"})
        await redis.zadd(keys.retry, {"to-be-retried": 1.0})

        found = await left(redis, queue_name)

    assert all(name in found for name in ("left-behind", "a-consumer", "to-be-retried"))
