"""The time at which a full queue will have room, from a real server, which is read rarely and never required."""

import pytest
from fakes.set_clock import Clock
from redis.asyncio import Redis

from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.drain_rate import UNKNOWN, Backlog
from ingest.queue.produce.producer import Producer
from ingest.queue.produce.producer_errors import BacklogFull


async def finish(redis: Redis, keys: Keys, count: int) -> None:
    """As many of the first entries are done."""
    entries = await redis.xrange(keys.stream, count=count)
    await redis.xdel(keys.stream, *(entry_id for entry_id, _ in entries))


async def test_it_is_what_the_refused_orders_take_at_the_rate_of_the_last_seconds(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    clock = Clock()
    backlog = Backlog(redis, keys.stream, clock)
    async with Producer.connect(redis_url, queue_name) as producer:
        await producer.enqueue([f"order-{number}" for number in range(100)])
        first = await backlog.retry_after(10)

        clock.now += 4
        await finish(redis, keys, 40)
        # Entries that others add do not hide it.
        await producer.enqueue([f"more-{number}" for number in range(40)])

    assert first == UNKNOWN
    assert await backlog.retry_after(50) == 5.0
    assert await backlog.retry_after(50) == 10.0, "those who were refused before come back as well"
    assert await backlog.retry_after(1_000_000) == 300.0


async def test_redis_is_asked_every_two_seconds_at_most(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    async with Producer.connect(own_valkey.url, "orders", backlog_limit=1) as producer:
        await producer.try_announce("a")
        for _ in range(100):
            with pytest.raises(BacklogFull):
                await producer.try_announce("b")
        stats = await own_redis.info("commandstats")

    # Of a slow machine, a test may take more than two seconds.
    assert stats["cmdstat_xinfo|stream"]["calls"] <= 10


@pytest.mark.each_server
async def test_a_user_who_may_not_ask_is_told_the_default(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    await own_redis.execute_command("ACL", "SETUSER", "limited", "on", ">pw", "~*", "+@all", "-xinfo|stream")
    url = f"redis://limited:pw@127.0.0.1:{own_valkey.port}/0"

    async with Redis.from_url(url) as limited, Producer.connect(url, "orders", backlog_limit=1) as producer:
        assert await Backlog(limited, Keys.of("orders").stream).retry_after(1) == UNKNOWN
        await producer.try_announce("a")
        with pytest.raises(BacklogFull) as full:
            await producer.try_announce("b")

    assert 0.75 * UNKNOWN <= full.value.retry_after <= 1.25 * UNKNOWN
