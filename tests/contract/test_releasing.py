"""Releasing and leaving on a real server: others may take what is left at once, and no delivery is counted that did not happen."""

from contract.heartbeating import (
    EVER,
    GROUP,
    NOW,
    counts,
    heartbeats_end,
    hold,
    keep_alive,
    members,
    pending,
)
from redelivery import as_read, sweep
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.delivery import Delivery
from ingest.queue.consume.consumer import Consumer
from ingest.queue.layout.keys import Keys

# -- releasing -------------------------------------------------------------------------------------------------


async def claimed_by_whatever_means(consumer: Consumer) -> list[Delivery]:
    """What a worker would take in on its next round, without waiting for anybody to become stale."""
    await sweep(consumer, EVER / 1000)
    found = await consumer.claim_abandoned(10)
    return [*found.released, *found.dead, *await consumer.read(10, NOW)]


async def test_large_documents_are_released_a_few_megabytes_at_a_time(one: Consumer, redis: Redis, keys: Keys) -> None:
    for _ in range(6):
        await redis.xadd(keys.stream, {"order_id": "a", "document": b" " * (1 << 20)})
    held = await one.read(10, NOW)
    calls = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"]

    assert await one.release(held) == 6

    assert (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"] == calls + 3
    assert len(await one.read(10, NOW) or (await one.claim_abandoned(10)).released) == 6


async def test_released_twice_the_delivery_is_taken_off_the_count_once(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a")
    await redis.xclaim(keys.stream, GROUP, "one", 0, held, retrycount=3, justid=True)

    await one.release(await as_read(redis, keys, held))
    await one.release(await as_read(redis, keys, held))

    assert await counts(redis, keys) == {held[0]: 2}


async def test_what_is_released_after_somebody_deleted_its_entry_waits_in_the_retry_set(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.stream, {"order_id": "deleted"})
    await redis.xadd(keys.stream, {"order_id": "kept"})
    deleted, kept = await one.read(10, NOW)
    # As a producer's XADD with MAXLEN does: the pending record is all that Redis still has.
    await redis.xdel(keys.stream, deleted.entry.id)

    assert await one.release([deleted, kept]) == 1

    assert await counts(redis, keys) == {kept.entry.id: 0}
    assert await eventually(lambda: one.move_due(10)) == 1
    [again] = await one.read(1, NOW)
    taken = [again, *await claimed_by_whatever_means(one)]
    assert {delivery.order_id for delivery in taken} == {"deleted", "kept"}


# -- leaving ----------------------------------------------------------------------------------------------------


async def test_only_consumers_that_never_had_a_heartbeat_are_removed_for_being_silent(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    await keep_alive(redis, keys, one, two)
    for name in ("dead", "stranger"):
        await redis.xgroup_createconsumer(keys.stream, GROUP, name)
    await heartbeats_end(redis, keys, "dead")
    await redis.xclaim(keys.stream, GROUP, "forgetful", 0, held, justid=True)

    assert await two.remove_stale(-1.0) == 1

    assert {"stranger", "dead"} & await members(redis, keys) == {"dead"}
    assert await pending(redis, keys) == {held[0]: ("forgetful", 1)}
