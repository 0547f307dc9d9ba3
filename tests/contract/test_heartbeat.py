"""Heartbeats on a real server: who counts as alive, who may take over what, and what was given back.

Time passes by moving scores: a heartbeat's end and the moment from which a consumer may judge others are times of the server.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager

import pytest
from redis.asyncio import Redis

from ingest.domain.delivery import DeadReason, Delivery
from ingest.queue.consumer import Consumer
from ingest.queue.keys import Keys

GROUP = "ingest"
NOW = 0.001  # the shortest wait for new entries
LIFETIME = 60.0  # of a heartbeat: longer than any test
LEASE = 60.0
EVER = 10**9


def connect(url: str, queue: str, name: str) -> AbstractAsyncContextManager[Consumer]:
    return Consumer.open(url, queue, GROUP, name, block=1.0)


@pytest.fixture
async def one(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    async with connect(redis_url, queue_name, "one") as consumer:
        await consumer.ensure_group()
        yield consumer


@pytest.fixture
async def two(redis_url: str, queue_name: str, one: Consumer) -> AsyncIterator[Consumer]:
    del one  # it has made the group
    async with connect(redis_url, queue_name, "two") as consumer:
        yield consumer


async def server_time(redis: Redis) -> float:
    """Seconds."""
    seconds, micros = await redis.time()
    return float(seconds + micros / 1e6)


async def falls_silent(redis: Redis, keys: Keys, *names: str) -> None:
    """Let their heartbeats have ended a moment ago."""
    ended = (await server_time(redis) - 0.01) * 1000
    await redis.zadd(keys.alive + GROUP, dict.fromkeys(names, ended))


async def has_been_heard_long_enough(redis: Redis, keys: Keys, *names: str) -> None:
    """Let their series of heartbeats have lasted for a lifetime."""
    from_ = (await server_time(redis) - 0.01) * 1000
    await redis.zadd(keys.standing + GROUP, dict.fromkeys(names, from_))


async def beats(redis: Redis, keys: Keys, *consumers: Consumer) -> None:
    """Let them live, and be entitled to judge."""
    for consumer in consumers:
        await consumer.beat(LIFETIME)
    await has_been_heard_long_enough(redis, keys, *(consumer.name for consumer in consumers))


async def hold(consumer: Consumer, redis: Redis, keys: Keys, *order_ids: str) -> list[str]:
    """Let a consumer have been given entries; their IDs."""
    for order_id in order_ids:
        await redis.xadd(keys.stream, {"order_id": order_id})
    held = ids(await consumer.read(len(order_ids), NOW))
    assert len(held) == len(order_ids)
    return held


async def age(redis: Redis, keys: Keys, name: str, entry_ids: list[str], seconds: float) -> None:
    """Let entries look silent for that long, their owner and count as they are."""
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
    return {name.decode() for key in (keys.alive, keys.standing) for name in await redis.zrange(key + GROUP, 0, -1)}


def ids(deliveries: list[Delivery]) -> list[str]:
    return [delivery.entry_id for delivery in deliveries]


# -- taking over ------------------------------------------------------------------------------------------------


async def test_from_a_consumer_that_beats_nothing_is_taken_over(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await beats(redis, keys, one, two)

    assert await two.claim_dead(10) == []
    assert (await two.claim_idle(10, LEASE))[0] == []

    assert await pending(redis, keys) == dict.fromkeys(held, ("one", 1))


async def test_from_one_whose_heartbeat_has_ended_all_is_taken_over_at_once_and_counted(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await beats(redis, keys, one, two)
    await falls_silent(redis, keys, "one")

    taken = await two.claim_dead(10)

    assert [(delivery.entry_id, delivery.count, delivery.order_id) for delivery in taken] == [
        (held[0], 2, "a"),
        (held[1], 2, "b"),
    ]
    assert await pending(redis, keys) == dict.fromkeys(held, ("two", 2))


async def test_what_many_held_is_taken_over_in_parts_and_each_entry_once(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(50)))
    await redis.xclaim(keys.stream, GROUP, "three", 0, held[20:], justid=True)
    await beats(redis, keys, one, two)
    await falls_silent(redis, keys, "one", "three")

    parts = [ids(await two.claim_dead(7)) for _ in range(10)]

    assert max(map(len, parts)) == 7
    assert sorted(entry_id for part in parts for entry_id in part) == sorted(held)
    assert await members(redis, keys) == {"two"}


async def test_of_two_that_take_over_at_the_same_time_each_entry_goes_to_one(
    one: Consumer, two: Consumer, redis: Redis, redis_url: str, queue_name: str, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(200)))
    async with connect(redis_url, queue_name, "three") as three:
        await beats(redis, keys, one, two, three)
        await falls_silent(redis, keys, "one")

        parts = await asyncio.gather(*(consumer.claim_dead(20) for _ in range(10) for consumer in (two, three)))

    assert sorted(entry_id for part in parts for entry_id in ids(part)) == sorted(held)
    assert set((await counts(redis, keys)).values()) == {2}


async def test_a_dead_consumer_is_removed_when_it_holds_nothing_and_not_before(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    await hold(one, redis, keys, "a", "b")
    await beats(redis, keys, one, two)
    await falls_silent(redis, keys, "one")

    await two.claim_dead(1)
    between = await members(redis, keys), await known(redis, keys)
    await two.claim_dead(1)
    await two.claim_dead(1)

    assert between == ({"one", "two"}, {"one", "two"})
    assert await members(redis, keys) == {"two"}
    assert await known(redis, keys) == {"two"}
    assert len(await pending(redis, keys)) == 2


async def test_entries_deleted_while_a_dead_consumer_held_them_do_no_harm(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *"abcdef")
    await redis.xdel(keys.stream, *held[:4])
    await beats(redis, keys, one, two)
    await falls_silent(redis, keys, "one")

    taken = [entry_id for _ in range(5) for entry_id in ids(await two.claim_dead(2))]

    assert taken == held[4:]
    assert set(await pending(redis, keys)) == set(held[4:])
    assert await members(redis, keys) == {"two"}


async def test_what_was_taken_over_is_lost_to_its_owner_who_learns_it_from_a_renewal(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    lost, kept = await hold(one, redis, keys, "a", "b")
    await beats(redis, keys, one, two)
    await falls_silent(redis, keys, "one")
    await two.claim_dead(1)

    beat = await one.beat(LIFETIME)

    assert beat.is_first, "it is told that there was a break"
    assert await one.renew([lost, kept]) == {lost}
    assert await pending(redis, keys) == {lost: ("two", 2), kept: ("one", 1)}


# -- who may judge ----------------------------------------------------------------------------------------------


async def test_a_beat_tells_the_servers_time_and_whether_a_series_begins(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    before = await server_time(redis)
    first = await one.beat(LIFETIME)
    second = await one.beat(LIFETIME)
    after = await server_time(redis)
    await falls_silent(redis, keys, "one")
    after_a_break = await one.beat(LIFETIME)

    assert [beat.is_first for beat in (first, second, after_a_break)] == [True, False, True]
    assert before - 0.002 <= first.now <= second.now <= after + 0.002


async def test_a_newcomer_takes_nobody_for_dead_before_it_has_lived_for_a_lifetime_itself(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    await one.beat(LIFETIME)
    await falls_silent(redis, keys, "one")
    await age(redis, keys, "one", held, 10 * LEASE)
    await two.beat(LIFETIME)
    await two.beat(LIFETIME)

    early = await two.claim_dead(10), (await two.claim_idle(10, LEASE))[0]
    await has_been_heard_long_enough(redis, keys, "two")
    late = await two.claim_dead(10)

    assert early == ([], [])
    assert ids(late) == held


async def test_one_that_fell_silent_itself_takes_nobody_for_dead(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    await hold(one, redis, keys, "a")
    await beats(redis, keys, one, two)
    await falls_silent(redis, keys, "one", "two")

    assert await two.claim_dead(10) == []
    await two.beat(LIFETIME)
    assert await two.claim_dead(10) == []


async def test_after_an_outage_in_which_all_fell_silent_all_are_heard_again_and_nothing_changes_hands(
    one: Consumer, two: Consumer, redis: Redis, redis_url: str, queue_name: str, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    held_too = await hold(two, redis, keys, "c")
    await beats(redis, keys, one, two)
    await falls_silent(redis, keys, "one", "two")
    await age(redis, keys, "one", held, 10 * LEASE)

    async with connect(redis_url, queue_name, "newcomer") as newcomer:
        taken = []
        for consumer in (newcomer, one, two):
            await consumer.beat(LIFETIME)
            taken += [*await consumer.claim_dead(10), *(await consumer.claim_idle(10, LEASE))[0]]
        lost = await one.renew(held) | await two.renew(held_too)
        await has_been_heard_long_enough(redis, keys, "one", "two", "newcomer")
        for consumer in (newcomer, one, two):
            taken += [*await consumer.claim_dead(10), *(await consumer.claim_idle(10, LEASE))[0]]

    assert (taken, lost) == ([], set())
    assert set((await counts(redis, keys)).values()) == {1}


async def test_one_without_any_heartbeat_takes_only_what_is_idle(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    fresh, old = await hold(one, redis, keys, "a", "b")
    await age(redis, keys, "one", [old], LEASE + 1)
    await falls_silent(redis, keys, "one")

    assert await two.claim_dead(10) == []
    assert ids((await two.claim_idle(10, LEASE))[0]) == [old]
    assert (await pending(redis, keys))[fresh] == ("one", 1)


async def test_one_that_beats_still_loses_what_it_has_forgotten_to_renew(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    renewed, forgotten = await hold(one, redis, keys, "a", "b")
    await beats(redis, keys, one, two)
    await age(redis, keys, "one", [renewed, forgotten], LEASE + 1)
    await one.renew([renewed])

    assert ids((await two.claim_idle(10, LEASE))[0]) == [forgotten]


# -- giving back ------------------------------------------------------------------------------------------------


async def claimed_by_whatever_means(consumer: Consumer) -> list[Delivery]:
    """What a worker would take in on its next round, without waiting for anybody's silence."""
    return [
        *await consumer.claim_dead(10),
        *(await consumer.claim_idle(10, EVER / 1000))[0],
        *await consumer.read(10, NOW, idle=EVER / 1000),
    ]


@pytest.mark.parametrize("since", ["newcomer", "long since"])
async def test_what_was_given_back_anybody_may_take_at_once_and_it_was_never_delivered(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys, since: str
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await beats(redis, keys, one)
    await two.beat(LIFETIME)
    if since == "long since":
        await has_been_heard_long_enough(redis, keys, "two")

    assert await one.release(held) == 2

    assert await counts(redis, keys) == dict.fromkeys(held, 0)
    taken = await claimed_by_whatever_means(two)
    assert [(delivery.entry_id, delivery.count) for delivery in taken] == [(entry_id, 1) for entry_id in held]


async def test_the_one_that_gave_it_back_may_take_it_again(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a")
    await beats(redis, keys, one)
    await one.release(held)

    assert ids(await claimed_by_whatever_means(one)) == held
    assert await pending(redis, keys) == {held[0]: ("one", 1)}


async def test_given_back_twice_the_delivery_is_taken_off_the_count_once(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    await redis.xclaim(keys.stream, GROUP, "one", 0, held, retrycount=3, justid=True)

    await one.release(held)
    await one.release(held)

    assert await counts(redis, keys) == {held[0]: 2}


async def test_a_renewal_on_the_heels_of_a_release_does_not_take_it_back(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    given_back, kept = await hold(one, redis, keys, "a", "b")
    await one.release([given_back])

    assert await one.renew([given_back, kept]) == set()

    await two.beat(LIFETIME)
    assert ids(await claimed_by_whatever_means(two)) == [given_back]


async def test_what_was_given_back_cannot_be_moved_any_more(one: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.xadd(keys.stream, {"order_id": "a"})
    (delivery,) = await one.read(1, NOW)
    await one.release([delivery.entry_id])

    assert not await one.reschedule(delivery, 0.0, 2)
    assert not await one.bury(delivery, DeadReason.REJECTED, "no")

    assert await counts(redis, keys) == {delivery.entry_id: 0}
    assert await redis.zcard(keys.retry) == await redis.xlen(keys.dead) == 0


async def test_what_others_have_taken_cannot_be_given_back(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    await beats(redis, keys, one, two)
    await falls_silent(redis, keys, "one")
    await two.claim_dead(10)

    assert await one.release(held) == 0
    assert await pending(redis, keys) == {held[0]: ("two", 2)}


# -- leaving ----------------------------------------------------------------------------------------------------


async def test_who_leaves_with_empty_hands_is_forgotten(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a")
    await beats(redis, keys, one)
    await one.ack(held)

    assert await one.leave() == 0

    assert await members(redis, keys) == await known(redis, keys) == set()


async def test_who_leaves_holding_something_is_taken_over_from_at_once(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b", "c")
    await beats(redis, keys, one, two)
    await one.release(held[:1])

    assert await one.leave() == 2, "what was given back is held no more"

    taken = [delivery for _ in range(2) for delivery in await claimed_by_whatever_means(two)]
    assert sorted((delivery.entry_id, delivery.count) for delivery in taken) == [
        (held[0], 1),
        (held[1], 2),
        (held[2], 2),
    ]
    await two.claim_dead(1)
    assert await members(redis, keys) == {"two"}


async def test_who_has_left_may_come_again(one: Consumer, redis: Redis, keys: Keys) -> None:
    await beats(redis, keys, one)
    await one.leave()

    assert (await one.beat(LIFETIME)).is_first
    assert len(await hold(one, redis, keys, "a")) == 1


async def test_only_consumers_that_never_had_a_heartbeat_are_removed_for_being_silent(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    await beats(redis, keys, one, two)
    for name in ("dead", "stranger"):
        await redis.xgroup_createconsumer(keys.stream, GROUP, name)
    await falls_silent(redis, keys, "dead")
    await redis.xclaim(keys.stream, GROUP, "forgetful", 0, held, justid=True)

    assert await two.remove_silent(-1.0) == 1

    assert {"stranger", "dead"} & await members(redis, keys) == {"dead"}
    assert await pending(redis, keys) == {held[0]: ("forgetful", 1)}
