"""The behavior of the servers with claims, acks and removed consumers, on which the scripts of the queue rely."""

from typing import Any

import pytest
from redis.asyncio import Redis

pytestmark = pytest.mark.each_server

GROUP = "g"
LEASE = 60_000


async def deliver(redis: Redis, stream: str, count: int, consumer: str = "one") -> list[bytes]:
    """Add so many entries and let the consumer read them."""
    await redis.xgroup_create(stream, GROUP, "0", mkstream=True)
    entry_ids = [await redis.xadd(stream, {"n": number}) for number in range(count)]
    await redis.xreadgroup(GROUP, consumer, {stream: ">"})
    return entry_ids


async def age(redis: Redis, stream: str, consumer: str, *entry_ids: bytes) -> None:
    """Let entries look idle for twice the lease."""
    await redis.xclaim(stream, GROUP, consumer, 0, list(entry_ids), idle=2 * LEASE, justid=True)


async def pending(redis: Redis, stream: str, entry_id: bytes) -> dict[str, Any]:
    [row] = await redis.xpending_range(stream, GROUP, entry_id, entry_id, 1)
    return row


async def test_xclaim_with_justid_resets_the_idle_time_and_leaves_the_count_alone(
    redis: Redis, queue_name: str
) -> None:
    [entry_id] = await deliver(redis, queue_name, 1)
    await age(redis, queue_name, "one", entry_id)

    await redis.xclaim(queue_name, GROUP, "one", 0, [entry_id], justid=True)

    state = await pending(redis, queue_name, entry_id)
    assert state["time_since_delivered"] < LEASE
    assert state["times_delivered"] == 1


# -- the owner is not checked ------------------------------------------------------------------------------------------


async def test_an_xclaim_takes_a_message_from_whoever_owns_it(redis: Redis, queue_name: str) -> None:
    [entry_id] = await deliver(redis, queue_name, 1, consumer="one")

    await redis.xclaim(queue_name, GROUP, "two", 0, [entry_id], justid=True)

    assert (await pending(redis, queue_name, entry_id))["consumer"] == b"two"


async def test_an_ack_takes_a_message_from_whoever_owns_it(redis: Redis, queue_name: str) -> None:
    [entry_id] = await deliver(redis, queue_name, 1, consumer="one")

    assert await redis.xack(queue_name, GROUP, entry_id) == 1  # XACK takes no consumer name
    assert (await redis.xpending(queue_name, GROUP))["pending"] == 0


# -- consumers ----------------------------------------------------------------------------------------------------


async def test_deleting_a_consumer_drops_what_it_had_pending(redis: Redis, queue_name: str) -> None:
    await deliver(redis, queue_name, 3, consumer="one")

    dropped = await redis.xgroup_delconsumer(queue_name, GROUP, "one")

    assert dropped == 3
    assert await redis.xlen(queue_name) == 3
    assert (await redis.xpending(queue_name, GROUP))["pending"] == 0
    assert not await redis.xreadgroup(GROUP, "two", {queue_name: ">"})


async def test_checking_that_a_consumer_holds_nothing_and_then_deleting_it_loses_what_it_read_in_between(
    redis: Redis, queue_name: str
) -> None:
    await redis.xgroup_create(queue_name, GROUP, mkstream=True)
    await redis.xgroup_createconsumer(queue_name, GROUP, "one")
    await redis.xadd(queue_name, {"a": 1})

    [state] = await redis.xinfo_consumers(queue_name, GROUP)
    await redis.xreadgroup(GROUP, "one", {queue_name: ">"})
    dropped = await redis.xgroup_delconsumer(queue_name, GROUP, "one")

    assert (state["pending"], dropped) == (0, 1)
