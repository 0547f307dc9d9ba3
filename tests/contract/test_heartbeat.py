"""Heartbeats on a real server: who counts as alive, and who may reclaim what.

Time passes by moving scores: a heartbeat's end and the moment from which a consumer may reclaim from others are times of the server.
"""

import asyncio

from contract.heartbeating import (
    GROUP,
    LEASE,
    LIFETIME,
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
)
from redelivery import claim_dead, claim_idle, refs
from redis.asyncio import Redis

from ingest.queue.consume.consumer import Consumer
from ingest.queue.layout.keys import Keys

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
