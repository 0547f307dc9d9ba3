"""The results stream on real servers: its events, their age, and settlement without waiting for space."""

from collections.abc import AsyncIterator

import pytest
from consumers import Consumer
from contract.heartbeating import GROUP, NOW
from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.result import Finished, Result, ResultKind
from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import QueueRefused

pytestmark = pytest.mark.topologies

HOUR = 3600.0


@pytest.fixture
async def telling(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with Consumer.open(redis_url, queue_name, GROUP, "one", 1.0, HOUR) as consumer:
        await consumer.ensure_group()
        yield consumer


async def events(redis: Redis, keys: Keys) -> list[dict[str, str]]:
    return [
        {name.decode(): value.decode() for name, value in fields.items()}
        for _, fields in await redis.xrange(keys.results)
    ]


async def test_an_event_says_what_has_become_of_its_order(telling: Consumer, redis: Redis, keys: Keys) -> None:
    for order_id in ("a", "b", "c", "not valid "):
        await redis.xadd(keys.stream, {"order_id": order_id})
    a, b, c, invalid = await telling.read(4, NOW)
    split = (Result("b-1", ResultKind.CHANGED, "b"), Result("b-2", ResultKind.ERASED, "b"))

    await telling.ack_with_results([Finished(a.entry, (Result("a", ResultKind.SKIPPED),)), Finished(b.entry, split)])
    await telling.dead_letter(c, DeadReason.TRANSFORM_FAILED, "`KeyError` at shop:1 in transform")
    await telling.dead_letter(invalid, DeadReason.INVALID_MESSAGE, "the entry has no valid order_id")

    assert await events(redis, keys) == [
        {"order_id": "a", "outcome": "skipped"},
        {"order_id": "b-1", "outcome": "changed", "announced_as": "b"},
        {"order_id": "b-2", "outcome": "erased", "announced_as": "b"},
        {"order_id": "c", "outcome": "dead_lettered", "reason": "transform_failed"},
        {"outcome": "dead_lettered", "reason": "invalid_message"},
    ]


async def test_results_that_are_too_old_are_removed_by_the_next(telling: Consumer, redis: Redis, keys: Keys) -> None:
    seconds, _ = await redis.time()
    for number in range(1_000):
        await redis.xadd(keys.results, {"outcome": "old"}, id=f"{(seconds - 2 * int(HOUR)) * 1000}-{number}")
    await redis.xadd(keys.results, {"outcome": "young"}, id=f"{(seconds - int(HOUR) // 2) * 1000}-0")
    await redis.xadd(keys.stream, {"order_id": "a"})
    [delivery] = await telling.read(1, NOW)

    await telling.ack_with_results([Finished(delivery.entry, (Result("a", ResultKind.INSERTED),))])

    kept = [event["outcome"] for event in await events(redis, keys)]
    # Whole nodes go, of about a hundred entries.
    assert kept[-2:] == ["young", "inserted"]
    assert kept.count("old") < 200


@pytest.mark.each_server
async def test_at_the_memory_limit_orders_are_finished_and_told(own_valkey: ValkeyServer, own_redis: Redis) -> None:
    keys = Keys.of("orders")
    async with Consumer.open(own_valkey.url, "orders", GROUP, "one", 1.0, HOUR) as consumer:
        await consumer.ensure_group()
        for order_id in ("a", "b"):
            await own_redis.xadd(keys.stream, {"order_id": order_id})
        a, b = await consumer.read(2, NOW)
        await own_redis.config_set("maxmemory", 1)

        assert await consumer.ack_with_results([Finished(a.entry, (Result("a", ResultKind.INSERTED),))]) == 1
        assert await consumer.dead_letter(b, DeadReason.NOT_FOUND, "HTTP 404")

        assert [event["outcome"] for event in await events(own_redis, keys)] == ["inserted", "dead_lettered"]
        assert await own_redis.xlen(keys.stream) == 0


async def test_what_cannot_be_told_is_not_finished(telling: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.set(keys.results, "no stream")
    await redis.xadd(keys.stream, {"order_id": "a"})
    [delivery] = await telling.read(1, NOW)

    with pytest.raises(QueueRefused):
        await telling.ack_with_results([Finished(delivery.entry, (Result("a", ResultKind.INSERTED),))])
    with pytest.raises(QueueRefused):
        await telling.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")

    assert await redis.xlen(keys.stream) == 1
    assert await redis.xlen(keys.dead) == 0


async def test_results_wait_for_other_groups_as_acks_do(telling: Consumer, redis: Redis, keys: Keys) -> None:
    for lane in (keys.stream, keys.express):
        await redis.xgroup_create(lane, "audit", id="0", mkstream=True)
    await redis.xadd(keys.stream, {"order_id": "a"})
    [delivery] = await telling.read(1, NOW)

    assert await telling.ack_with_results([Finished(delivery.entry, (Result("a", ResultKind.INSERTED),))]) == 1

    assert await redis.xlen(keys.stream) == 1
    assert await redis.zcard(keys.settled) == 1
    assert len(await events(redis, keys)) == 1
