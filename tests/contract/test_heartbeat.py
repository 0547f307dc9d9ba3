"""Heartbeats on a real server: who counts as alive, and who may reclaim what.

Time passes by moving scores: a heartbeat's end and the moment from which a consumer may reclaim from others are times of the server.
"""

import asyncio

from consumers import Consumer
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
    pending,
    server_time,
)
from redelivery import claim_dead, claim_idle, refs
from redis.asyncio import Redis

from ingest.queue.layout.keys import Keys

# -- reclaiming -------------------------------------------------------------------------------------------------


async def test_from_a_consumer_with_a_heartbeat_nothing_is_reclaimed(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await keep_alive(redis, keys, one, two)

    assert await claim_dead(two, 10) == []
    assert await claim_idle(two, 10, LEASE) == []

    assert await pending(redis, keys) == dict.fromkeys(held, ("one", 1))


async def test_from_one_whose_heartbeat_has_ended_all_is_reclaimed_at_once_and_counted(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one")

    taken = await claim_dead(two, 10)

    assert [(delivery.entry.id, delivery.count, delivery.order_id) for delivery in taken] == [
        (held[0], 2, "a"),
        (held[1], 2, "b"),
    ]
    assert await pending(redis, keys) == dict.fromkeys(held, ("two", 2))


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
    assert await members(redis, keys) == {"two"}


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


async def test_a_dead_consumer_is_removed_when_it_holds_nothing_and_not_before(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    await hold(one, redis, keys, "a", "b")
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one")

    await claim_dead(two, 1)
    between = await members(redis, keys), await known(redis, keys)
    await claim_dead(two, 1)
    await claim_dead(two, 1)

    assert between == ({"one", "two"}, {"one", "two"})
    assert await members(redis, keys) == {"two"}
    assert await known(redis, keys) == {"two"}
    assert len(await pending(redis, keys)) == 2


async def test_entries_deleted_while_a_dead_consumer_held_them_do_no_harm(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *"abcdef")
    await redis.xdel(keys.stream, *held[:4])
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one")

    taken = [entry_id for _ in range(5) for entry_id in ids(await claim_dead(two, 2))]

    assert taken == held[4:]
    assert set(await pending(redis, keys)) == set(held[4:])
    assert await members(redis, keys) == {"two"}


async def test_what_was_reclaimed_is_lost_to_its_owner_who_learns_it_from_a_renewal(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    lost, kept = await hold(one, redis, keys, "a", "b")
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one")
    await claim_dead(two, 1)

    heartbeat = await one.heartbeat(LIFETIME)

    assert heartbeat.is_first, "it is told that there was a break"
    assert await one.renew(refs(keys, [lost, kept])) == set(refs(keys, [lost]))
    assert await pending(redis, keys) == {lost: ("two", 2), kept: ("one", 1)}


# -- who may reclaim ----------------------------------------------------------------------------------------------


async def test_a_heartbeat_tells_the_servers_time_and_whether_a_series_begins(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    before = await server_time(redis)
    first = await one.heartbeat(LIFETIME)
    second = await one.heartbeat(LIFETIME)
    after = await server_time(redis)
    await heartbeats_end(redis, keys, "one")
    after_a_break = await one.heartbeat(LIFETIME)

    assert [heartbeat.is_first for heartbeat in (first, second, after_a_break)] == [True, False, True]
    assert before - 0.002 <= first.now <= second.now <= after + 0.002


async def test_a_newcomer_takes_nobody_for_dead_before_it_has_lived_for_a_lifetime_itself(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    await one.heartbeat(LIFETIME)
    await heartbeats_end(redis, keys, "one")
    await age(redis, keys, "one", held, 10 * LEASE)
    await two.heartbeat(LIFETIME)
    await two.heartbeat(LIFETIME)

    early = await claim_dead(two, 10), await claim_idle(two, 10, LEASE)
    await has_been_heard_long_enough(redis, keys, "two")
    late = await claim_dead(two, 10)

    assert early == ([], [])
    assert ids(late) == held


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


async def test_one_without_any_heartbeat_takes_only_what_is_idle(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    fresh, old = await hold(one, redis, keys, "a", "b")
    await age(redis, keys, "one", [old], LEASE + 1)
    await heartbeats_end(redis, keys, "one")

    assert await claim_dead(two, 10) == []
    assert ids(await claim_idle(two, 10, LEASE)) == [old]
    assert (await pending(redis, keys))[fresh] == ("one", 1)


async def test_one_with_a_heartbeat_still_loses_what_it_has_forgotten_to_renew(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    renewed, forgotten = await hold(one, redis, keys, "a", "b")
    await keep_alive(redis, keys, one, two)
    await age(redis, keys, "one", [renewed, forgotten], LEASE + 1)
    await one.renew(refs(keys, [renewed]))

    assert ids(await claim_idle(two, 10, LEASE)) == [forgotten]
