"""Heartbeats, releasing and leaving on a real server. They decide which consumers are alive and which entries others may take.

Time passes by moving scores: a heartbeat's end and the moment from which a consumer may reclaim from others are times of the server.
"""

import asyncio

import pytest
from consumers import Consumer, server_stats
from contract.heartbeating import (
    EVER,
    GROUP,
    LEASE,
    LIFETIME,
    NOW,
    age,
    connect,
    counts,
    has_been_heard_long_enough,
    heartbeats_end,
    hold,
    ids,
    keep_alive,
    known,
    members,
    pending,
    server_time,
)
from redelivery import as_read, claim_dead, claim_idle, refs, sweep
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.delivery import Delivery
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.scripts import load

pytestmark = pytest.mark.topologies

# -- reclaiming -------------------------------------------------------------------------------------------------


async def test_what_many_held_is_reclaimed_in_parts_and_each_entry_once(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(50)))
    await redis.xclaim(keys.stream, GROUP, "three", 0, held[20:], justid=True)
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one", "three")

    parts = [ids(await claim_dead(two, 7)) for _ in range(10)]

    assert max(map(len, parts)) == 7
    assert sorted(entry_id for part in parts for entry_id in part) == sorted(held)
    assert await members(redis, keys) == await known(redis, keys) == {"two"}


async def test_of_two_that_reclaim_at_the_same_time_each_entry_goes_to_one(
    one: Consumer, two: Consumer, redis: Redis, redis_url: str, queue_name: str, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(200)))
    async with connect(redis_url, queue_name, "three") as three:
        await keep_alive(redis, keys, one, two, three)
        await heartbeats_end(redis, keys, "one")

        parts = await asyncio.gather(*(claim_dead(consumer, 20) for _ in range(10) for consumer in (two, three)))

    assert sorted(entry_id for part in parts for entry_id in ids(part)) == sorted(held)
    assert set((await counts(redis, keys)).values()) == {2}


# -- who may reclaim ----------------------------------------------------------------------------------------------


async def test_a_consumer_whose_own_heartbeat_was_stale_counts_nobody_as_dead(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    await hold(one, redis, keys, "a")
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one", "two")

    assert await claim_dead(two, 10) == []
    await two.heartbeat(LIFETIME)
    assert await claim_dead(two, 10) == []


async def test_after_an_outage_in_which_all_fell_silent_all_are_heard_again_and_nothing_changes_hands(
    one: Consumer, two: Consumer, redis: Redis, redis_url: str, queue_name: str, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    held_too = await hold(two, redis, keys, "c")
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one", "two")
    await age(redis, keys, "one", held, 10 * LEASE)

    async with connect(redis_url, queue_name, "newcomer") as newcomer:
        taken = []
        for consumer in (newcomer, one, two):
            await consumer.heartbeat(LIFETIME)
            taken += [*await claim_dead(consumer, 10), *await claim_idle(consumer, 10, LEASE)]
        lost = await one.renew(refs(keys, held)) | await two.renew(refs(keys, held_too))
        await has_been_heard_long_enough(redis, keys, "one", "two", "newcomer")
        for consumer in (newcomer, one, two):
            taken += [*await claim_dead(consumer, 10), *await claim_idle(consumer, 10, LEASE)]

    assert (taken, lost) == ([], set())
    assert set((await counts(redis, keys)).values()) == {1}


async def test_when_redis_clock_is_set_back_the_queues_clock_goes_on_from_its_last_time(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    now = int(await server_time(redis) * 1000)
    await redis.hset(keys.clock, mapping={"ahead": 3_600_000, "noted_at": now})
    before = (await one.heartbeat(LIFETIME)).now
    await redis.hset(keys.clock, "ahead", 0)  # as if Redis' clock were set back by an hour

    after = (await one.heartbeat(LIFETIME)).now

    assert after >= before >= now / 1000 + 3600

    async def goes_on() -> bool:
        return (await one.heartbeat(LIFETIME)).now > after

    await eventually(goes_on, within=10)


# -- releasing -------------------------------------------------------------------------------------------------


async def claimed_by_whatever_means(consumer: Consumer) -> list[Delivery]:
    """The entries that a worker would reclaim in its next round, without waiting for a stale consumer."""
    await sweep(consumer, EVER / 1000)
    found = await consumer.claim_abandoned(10)
    return [*found.released, *found.dead, *await consumer.read(10, NOW)]


@pytest.mark.each_server
@pytest.mark.topologies("standalone")
async def test_large_documents_are_released_a_few_megabytes_at_a_time(one: Consumer, redis: Redis, keys: Keys) -> None:
    await one.release(await as_read(redis, keys, await hold(one, redis, keys, "small")))  # the script is loaded
    await one.ack([delivery.entry for delivery in (await one.claim_abandoned(1)).released])
    for _ in range(6):
        await redis.xadd(keys.stream, {"order_id": "a", "document": b" " * (1 << 20)})
    held = await one.read(10, NOW)
    calls = (await server_stats(redis, keys, "commandstats"))["cmdstat_evalsha"]["calls"]

    assert await one.release(held) == 6

    assert (await server_stats(redis, keys, "commandstats"))["cmdstat_evalsha"]["calls"] == calls + 3
    assert len(await one.read(10, NOW) or (await one.claim_abandoned(10)).released) == 6


@pytest.mark.each_server
async def test_released_twice_the_delivery_is_taken_off_the_count_once(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a")
    await redis.xclaim(keys.stream, GROUP, "one", 0, held, retrycount=3, justid=True)

    await one.release(await as_read(redis, keys, held))
    await one.release(await as_read(redis, keys, held))

    assert await counts(redis, keys) == {held[0]: 2}


@pytest.mark.each_server
async def test_what_is_released_after_somebody_deleted_its_entry_waits_in_the_retry_set(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.stream, {"order_id": "deleted"})
    await redis.xadd(keys.stream, {"order_id": "kept"})
    deleted, kept = await one.read(10, NOW)
    # As a producer's XADD with MAXLEN does: Redis keeps only the pending record.
    await redis.xdel(keys.stream, deleted.entry.id)

    assert await one.release([deleted, kept]) == 1

    assert await counts(redis, keys) == {kept.entry.id: 0}
    assert await eventually(lambda: one.move_due(10)) == 1
    [again] = await one.read(1, NOW)
    taken = [again, *await claimed_by_whatever_means(one)]
    assert {delivery.order_id for delivery in taken} == {"deleted", "kept"}


# -- leaving ----------------------------------------------------------------------------------------------------


async def test_who_leaves_with_empty_hands_is_forgotten(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a")
    await keep_alive(redis, keys, one)
    await one.ack(refs(keys, held))

    assert await one.leave() == 0

    assert await members(redis, keys) == await known(redis, keys) == set()


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


async def test_a_consumer_that_has_just_received_an_entry_is_not_removed(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    # It was idle when the consumers were listed.
    await hold(one, redis, keys, "a")

    removed = await load(redis, "remove_consumers")([keys.alive, keys.stream, keys.express], [GROUP, "two", "one"])

    assert removed == 0
    assert len(await pending(redis, keys)) == 1
