"""Shared parts of the tests of heartbeats. Time passes by moving scores, which are times of the server."""

from contextlib import AbstractAsyncContextManager

from consumers import Consumer
from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import Delivery
from ingest.queue.layout.keys import Keys

GROUP = "ingest"
NOW = 0.001  # the shortest wait for new entries
LIFETIME = 60.0  # of a heartbeat: longer than any test
LEASE = 60.0
EVER = 10**9


def connect(url: str, queue: str, name: str) -> AbstractAsyncContextManager[Consumer]:
    return Consumer.open(url, queue, GROUP, name, block=1.0)


async def server_time(redis: Redis) -> float:
    """Seconds."""
    seconds, micros = await redis.time()
    return float(seconds + micros / 1e6)


async def heartbeats_end(redis: Redis, keys: Keys, *names: str) -> None:
    """Let their heartbeats have ended a moment ago."""
    ended = (await server_time(redis) - 0.01) * 1000
    await redis.zadd(keys.alive, dict.fromkeys(names, ended))


async def has_been_heard_long_enough(redis: Redis, keys: Keys, *names: str) -> None:
    """Let their series of heartbeats have lasted for a lifetime."""
    from_ = (await server_time(redis) - 0.01) * 1000
    await redis.zadd(keys.standing, dict.fromkeys(names, from_))


async def keep_alive(redis: Redis, keys: Keys, *consumers: Consumer) -> None:
    """Let them live, and be entitled to reclaim from others."""
    for consumer in consumers:
        await consumer.heartbeat(LIFETIME)
    await has_been_heard_long_enough(redis, keys, *(consumer.name for consumer in consumers))


async def hold(consumer: Consumer, redis: Redis, keys: Keys, *order_ids: str) -> list[str]:
    """Deliver entries to a consumer, and return their IDs."""
    for order_id in order_ids:
        await redis.xadd(keys.stream, {"order_id": order_id})
    held = ids(await consumer.read(len(order_ids), NOW))
    assert len(held) == len(order_ids)
    return held


async def age(redis: Redis, keys: Keys, name: str, entry_ids: list[str], seconds: float) -> None:
    """Let entries look idle for that long, their owner and count as they are."""
    await redis.xclaim(keys.stream, GROUP, name, 0, entry_ids, idle=int(seconds * 1000), justid=True)


async def pending(redis: Redis, keys: Keys) -> dict[str, tuple[str, int]]:
    """Owner and delivery count of each pending entry."""
    rows = await redis.xpending_range(keys.stream, GROUP, "-", "+", 10_000)
    return {row["message_id"].decode(): (row["consumer"].decode(), row["times_delivered"]) for row in rows}


async def counts(redis: Redis, keys: Keys) -> dict[str, int]:
    """Delivery count of each pending entry."""
    return {entry_id: count for entry_id, (_, count) in (await pending(redis, keys)).items()}


async def members(redis: Redis, keys: Keys) -> set[str]:
    """Who belongs to the group."""
    return {row["name"].decode() for row in await redis.xinfo_consumers(keys.stream, GROUP)}


async def known(redis: Redis, keys: Keys) -> set[str]:
    """Whose heartbeats are remembered, for whatever purpose."""
    return {name.decode() for key in (keys.alive, keys.standing) for name in await redis.zrange(key, 0, -1)}


def ids(deliveries: list[Delivery]) -> list[str]:
    return [delivery.entry.id for delivery in deliveries]
