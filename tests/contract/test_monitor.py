"""What the monitor says of a queue, on a real server."""

from collections.abc import AsyncIterator

import pytest
from redis.asyncio import Redis
from support import eventually

from ingest.demo.servers import ValkeyServer
from ingest.domain.delivery import DeadReason
from ingest.domain.errors import QueueUnavailable, UserError
from ingest.queue.connection import QueueRefused, control_client
from ingest.queue.consumer import Consumer
from ingest.queue.keys import Keys
from ingest.queue.monitor import Monitor
from ingest.telemetry.metrics import QueueState


@pytest.fixture
async def monitor(redis_url: str, queue_name: str) -> AsyncIterator[Monitor]:
    async with control_client(redis_url) as client:
        yield Monitor(client, queue_name, "ingest")


@pytest.fixture
async def consumer(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with Consumer.open(redis_url, queue_name, "ingest", "one", 1.0) as consumer:
        yield consumer


async def fill(redis: Redis, keys: Keys, count: int) -> None:
    for number in range(count):
        await redis.xadd(keys.stream, {"order_id": f"order-{number}"})


async def test_a_queue_that_nobody_has_used_is_empty(monitor: Monitor, redis: Redis, keys: Keys) -> None:
    assert await monitor.state() == QueueState(depth=0, pending=0, oldest_age=0.0, consumers=0, retries=0, dead=0)
    assert await monitor.consumers() == []
    assert await redis.exists(keys.stream) == 0


async def test_without_a_group_all_is_undelivered(monitor: Monitor, redis: Redis, keys: Keys) -> None:
    await fill(redis, keys, 3)

    state = await monitor.state()

    assert (state.depth, state.pending, state.consumers) == (3, 0, 0)
    assert await monitor.consumers() == []


async def test_each_entry_is_counted_where_it_is(
    monitor: Monitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await fill(redis, keys, 10)
    taken = await consumer.read(6, 0.001)
    await consumer.ack([taken[0].entry_id])
    await consumer.reschedule(taken[1], 60, 2)
    await consumer.reschedule(taken[2], 60, 2)
    await consumer.bury(taken[3], DeadReason.REJECTED, "no")

    state = await monitor.state()

    assert (state.depth, state.pending, state.retries, state.dead, state.consumers) == (4, 2, 2, 1, 1)
    [only] = await monitor.consumers()
    assert (only.name, only.pending) == ("one", 2)
    assert only.idle >= 0


async def test_the_age_is_that_of_the_oldest_unfinished_entry(
    monitor: Monitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    seconds, _ = await redis.time()
    for age in (500, 300, 100):
        await redis.xadd(keys.stream, {"order_id": "a"}, id=f"{(seconds - age) * 1000}-0")
    await consumer.ensure_group()
    [oldest] = await consumer.read(1, 0.001)

    pending = (await monitor.state()).oldest_age
    await consumer.ack([oldest.entry_id])
    waiting = (await monitor.state()).oldest_age

    assert 500 <= pending < 600
    assert 300 <= waiting < 400


async def test_with_a_second_group_each_has_its_own_depth(
    monitor: Monitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await fill(redis, keys, 5)
    await redis.xgroup_create(keys.stream, "audit", id="0")
    taken = await consumer.read(3, 0.001)
    await consumer.ack([taken[0].entry_id])

    state = await monitor.state()

    assert (state.depth, state.pending) == (2, 2)


async def test_a_depth_that_redis_cannot_tell_is_unknown_and_not_zero(
    monitor: Monitor, consumer: Consumer, redis: Redis, keys: Keys
) -> None:
    await consumer.ensure_group()
    await redis.xgroup_create(keys.stream, "audit", id="0")
    await fill(redis, keys, 5)
    [entry_id] = [entry_id for entry_id, _ in await redis.xrange(keys.stream)][2:3]
    await redis.xdel(keys.stream, entry_id)  # unread, in the middle

    assert (await monitor.state()).depth is None


async def test_consumers_are_told_by_name(monitor: Monitor, redis: Redis, keys: Keys) -> None:
    await redis.xgroup_create(keys.stream, "ingest", mkstream=True)
    for name in ("b", "c", "a", b"\xff"):
        await redis.xgroup_createconsumer(keys.stream, "ingest", name)

    assert [state.name for state in await monitor.consumers()] == ["a", "b", "c", "\ufffd"]


async def test_what_can_lose_entries_is_told(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    async def rewritten() -> bool:
        info = await own_redis.info("persistence")
        return not (info["aof_rewrite_in_progress"] or info["aof_rewrite_scheduled"])

    async with control_client(own_valkey.url) as client:
        monitor = Monitor(client, "orders", "ingest")
        volatile = await monitor.traps()
        await own_redis.config_set("appendonly", "yes")
        await own_redis.config_set("maxmemory-policy", "allkeys-lru")
        evicting = await monitor.traps()
        await own_redis.config_set("maxmemory-policy", "noeviction")
        safe = await monitor.traps()
    await eventually(rewritten)  # the server does not end before

    assert [line.split()[0] for line in (*volatile, *evicting)] == ["appendonly", "maxmemory-policy"]
    assert "noeviction" in evicting[0]
    assert safe == []


async def test_a_server_that_is_away_is_unavailable(own_valkey: ValkeyServer) -> None:
    async with control_client(own_valkey.url) as client:
        monitor = Monitor(client, "orders", "ingest")
        own_valkey.stop("nosave")

        for call in (monitor.state, monitor.consumers, monitor.traps):
            with pytest.raises(QueueUnavailable):
                await call()


async def test_a_replica_without_its_primary_is_unavailable(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    await own_redis.config_set("replica-serve-stale-data", "no")
    await own_redis.execute_command("REPLICAOF 127.0.0.1 1")

    async with control_client(own_valkey.url) as client:
        monitor = Monitor(client, "orders", "ingest")
        for call in (monitor.state, monitor.consumers):
            with pytest.raises(QueueUnavailable):
                await call()


async def test_a_refused_credential_is_for_a_person_to_put_right(servers: object, redis_url: str) -> None:
    del servers
    async with control_client(redis_url.replace("redis://:", "redis://:x")) as client:
        with pytest.raises(QueueRefused):
            await Monitor(client, "orders", "ingest").state()


async def test_a_key_of_another_type_is_for_a_person_to_put_right(monitor: Monitor, redis: Redis, keys: Keys) -> None:
    await redis.set(keys.stream, "not a stream")

    for call in (monitor.state, monitor.consumers):
        with pytest.raises(UserError):
            await call()
