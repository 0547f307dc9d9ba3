"""Releasing and leaving on a real server: others may take what is left at once, and no delivery is counted that did not happen."""

import pytest
from consumers import Consumer
from contract.heartbeating import (
    EVER,
    GROUP,
    LIFETIME,
    NOW,
    counts,
    has_been_heard_long_enough,
    heartbeats_end,
    hold,
    ids,
    keep_alive,
    known,
    members,
    pending,
)
from redelivery import as_read, claim_dead, refs, sweep
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.queue.layout.keys import Keys

# -- releasing -------------------------------------------------------------------------------------------------


async def claimed_by_whatever_means(consumer: Consumer) -> list[Delivery]:
    """What a worker would take in on its next round, without waiting for anybody to become stale."""
    await sweep(consumer, EVER / 1000)
    found = await consumer.claim_abandoned(10)
    return [*found.released, *found.dead, *await consumer.read(10, NOW)]


@pytest.mark.parametrize("since", ["newcomer", "long since"])
async def test_what_was_released_anybody_may_take_at_once_and_it_was_never_delivered(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys, since: str
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await keep_alive(redis, keys, one)
    await two.heartbeat(LIFETIME)
    if since == "long since":
        await has_been_heard_long_enough(redis, keys, "two")

    assert await one.release(await as_read(redis, keys, held)) == 2

    assert await counts(redis, keys) == dict.fromkeys(held, 0)
    taken = await claimed_by_whatever_means(two)
    assert [(delivery.entry.id, delivery.count) for delivery in taken] == [(entry_id, 1) for entry_id in held]


async def test_large_documents_are_released_a_few_megabytes_at_a_time(one: Consumer, redis: Redis, keys: Keys) -> None:
    for _ in range(6):
        await redis.xadd(keys.stream, {"order_id": "a", "document": b" " * (1 << 20)})
    held = await one.read(10, NOW)
    calls = (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"]

    assert await one.release(held) == 6

    assert (await redis.info("commandstats"))["cmdstat_evalsha"]["calls"] == calls + 3
    assert len(await one.read(10, NOW) or (await one.claim_abandoned(10)).released) == 6


async def test_the_one_that_gave_it_back_may_take_it_again(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a")
    await keep_alive(redis, keys, one)
    await one.release(await as_read(redis, keys, held))

    assert ids(await claimed_by_whatever_means(one)) == held
    assert await pending(redis, keys) == {held[0]: ("one", 1)}


async def test_released_twice_the_delivery_is_taken_off_the_count_once(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a")
    await redis.xclaim(keys.stream, GROUP, "one", 0, held, retrycount=3, justid=True)

    await one.release(await as_read(redis, keys, held))
    await one.release(await as_read(redis, keys, held))

    assert await counts(redis, keys) == {held[0]: 2}


async def test_a_renewal_on_the_heels_of_a_release_does_not_take_it_back(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    given_back, kept = await hold(one, redis, keys, "a", "b")
    await one.release(await as_read(redis, keys, [given_back]))

    assert await one.renew(refs(keys, [given_back, kept])) == set()

    await two.heartbeat(LIFETIME)
    assert ids(await claimed_by_whatever_means(two)) == [given_back]


async def test_what_was_released_cannot_be_moved_any_more(one: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.xadd(keys.stream, {"order_id": "a"})
    (delivery,) = await one.read(1, NOW)
    await one.release([delivery])

    assert not await one.reschedule(delivery, 0.0, 2)
    assert not await one.dead_letter(delivery, DeadReason.REJECTED, "no")

    assert await counts(redis, keys) == {delivery.entry.id: 0}
    assert await redis.zcard(keys.retry) == await redis.xlen(keys.dead) == 0


async def test_what_others_have_taken_cannot_be_released(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one")
    await claim_dead(two, 10)

    assert await one.release(await as_read(redis, keys, held)) == 0
    assert await pending(redis, keys) == {held[0]: ("two", 2)}


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


async def test_who_leaves_with_empty_hands_is_forgotten(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a")
    await keep_alive(redis, keys, one)
    await one.ack(refs(keys, held))

    assert await one.leave() == 0

    assert await members(redis, keys) == await known(redis, keys) == set()


async def test_from_who_leaves_holding_something_all_is_reclaimed_at_once(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b", "c")
    await keep_alive(redis, keys, one, two)
    await one.release(await as_read(redis, keys, held[:1]))

    assert await one.leave() == 2, "what was released is held no more"

    taken = [delivery for _ in range(2) for delivery in await claimed_by_whatever_means(two)]
    assert sorted((delivery.entry.id, delivery.count) for delivery in taken) == [
        (held[0], 1),
        (held[1], 2),
        (held[2], 2),
    ]
    await claim_dead(two, 1)
    assert await members(redis, keys) == {"two"}


async def test_who_has_left_may_come_again(one: Consumer, redis: Redis, keys: Keys) -> None:
    await keep_alive(redis, keys, one)
    await one.leave()

    assert (await one.heartbeat(LIFETIME)).is_first
    assert len(await hold(one, redis, keys, "a")) == 1


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
