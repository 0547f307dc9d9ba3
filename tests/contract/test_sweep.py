"""Entries that left the pending list without an ack are restored, and only settled entries are deleted."""

import asyncio
from contextlib import AbstractAsyncContextManager

import pytest
from consumers import Consumer
from contract.heartbeating import (
    GROUP,
    LEASE,
    LIFETIME,
    NOW,
    age,
    counts,
    has_been_heard_long_enough,
    heartbeats_end,
    hold,
    ids,
    keep_alive,
    pending,
)
from redelivery import MOST, as_read, claim_idle, delivered, refs, sweep
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.domain.deliveries.delivery import DeadReason
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.scripts import load

pytestmark = pytest.mark.topologies


async def left(redis: Redis, keys: Keys) -> list[str]:
    return [entry_id.decode() for entry_id, _ in await redis.xrange(keys.stream)]


# -- lost entries ----------------------------------------------------------------------------------------------


@pytest.mark.each_server
@pytest.mark.parametrize("is_shared", [False, True])
async def test_what_a_removed_consumer_held_is_put_back_and_never_trimmed(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys, *, is_shared: bool
) -> None:
    if is_shared:
        await redis.xgroup_create(keys.stream, "audit", id="$")
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(80)))
    await keep_alive(redis, keys, one, two)
    if is_shared:
        await redis.xreadgroup("audit", "auditor", {keys.stream: ">"}, noack=True)

    await redis.xgroup_delconsumer(keys.stream, GROUP, "one")

    assert await two.trim(MOST) == 0
    assert await left(redis, keys) == held
    assert await sweep(two, LEASE) == len(held)
    again = (await two.claim_abandoned(MOST)).released
    assert sorted(ids(again)) == sorted(held)
    assert {delivery.count for delivery in again} == {1}
    assert await two.ack(refs(keys, ids(again))) == len(held)
    await two.trim(MOST)
    assert await left(redis, keys) == []


@pytest.mark.each_server
async def test_what_was_skipped_by_a_moved_position_or_acked_by_hand_is_put_back(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    held, acked = await hold(one, redis, keys, "held", "acked by hand")
    skipped = (await redis.xadd(keys.stream, {"order_id": "skipped"})).decode()
    await redis.xgroup_setid(keys.stream, GROUP, "$")
    await redis.xack(keys.stream, GROUP, acked)

    assert await sweep(one, LEASE) == 2

    assert set(await pending(redis, keys)) == {held, acked, skipped}
    assert ids(await claim_idle(one, 10, LEASE)) == [acked, skipped]


@pytest.mark.each_server
@pytest.mark.parametrize("is_shared", [False, True])
async def test_what_is_settled_undelivered_or_pending_is_not_put_back(
    one: Consumer, redis: Redis, keys: Keys, *, is_shared: bool
) -> None:
    if is_shared:
        await redis.xgroup_create(keys.stream, "audit", id="0")
    acked, dead_lettered, retried, held = await hold(one, redis, keys, *"abcd")
    await redis.xadd(keys.stream, {"order_id": "undelivered"})
    await one.ack(refs(keys, [acked]))
    (dead,) = delivered(keys, [dead_lettered], "b")
    await one.dead_letter(dead, DeadReason.REJECTED, "no")
    (later,) = delivered(keys, [retried], "c")
    await one.reschedule(later, LEASE, 2)

    assert await sweep(one, LEASE) == 0

    assert set(await pending(redis, keys)) == {held}
    assert await redis.zcard(keys.released) == 0


@pytest.mark.each_server
async def test_many_lost_entries_among_many_held_are_all_found_page_by_page(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(700)))
    lost = [*held[:3], *held[90:260], *held[500:503], *held[-2:]]
    await redis.xclaim(keys.stream, GROUP, "gone", 0, lost, justid=True)
    await redis.xgroup_delconsumer(keys.stream, GROUP, "gone")

    assert await sweep(two, LEASE) == len(lost)

    assert await counts(redis, keys) == dict.fromkeys(held, 1) | dict.fromkeys(lost, 0)
    assert sorted(ids((await two.claim_abandoned(MOST)).released)) == sorted(lost)


@pytest.mark.each_server
async def test_lost_entries_among_many_settled_ones_are_found(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xgroup_create(keys.stream, "audit", id="0")
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(500)))
    lost = [held[0], held[250], held[499]]
    await one.ack(refs(keys, [entry_id for entry_id in held if entry_id not in lost]))
    await redis.xgroup_delconsumer(keys.stream, GROUP, "one")

    assert await sweep(two, LEASE) == len(lost)

    assert set(await pending(redis, keys)) == set(lost)


@pytest.mark.each_server
async def test_the_next_leader_goes_on_where_the_last_one_stopped(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(250)))
    await redis.xclaim(keys.stream, GROUP, "gone", 0, held[-1:], justid=True)
    await redis.xgroup_delconsumer(keys.stream, GROUP, "gone")

    pages = [await (one if number % 2 else two).sweep(LEASE) for number in range(3)]

    assert [page.is_complete for page in pages] == [False, False, True]
    assert [page.restored for page in pages] == [0, 0, 1]


@pytest.mark.each_server
async def test_a_sweep_ends_where_the_group_was_when_it_began_though_entries_keep_being_delivered(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    await hold(one, redis, keys, *(f"held-{number}" for number in range(250)))
    late: list[str] = []
    pages = []

    while not (pages and pages[-1].is_complete) and len(pages) < 10:
        pages.append(await two.sweep(LEASE))
        late += await hold(one, redis, keys, *(f"late-{len(pages)}-{number}" for number in range(120)))

    assert [page.is_complete for page in pages] == [False, False, True]
    await redis.xclaim(keys.stream, GROUP, "gone", 0, late[-3:], justid=True)
    await redis.xgroup_delconsumer(keys.stream, GROUP, "gone")
    assert await sweep(two, LEASE) == 3, "what was delivered during a sweep, the next one looks at"


@pytest.mark.each_server
async def test_a_sweep_of_the_express_lane_ends_although_entries_keep_being_delivered(
    two: Consumer, redis: Redis, keys: Keys
) -> None:
    async def deliver(count: int) -> None:
        for _ in range(count):
            await redis.xadd(keys.express, {"order_id": "urgent"})
        await redis.xreadgroup(GROUP, "one", {keys.express: ">"})

    await deliver(150)
    pages = []

    while not (pages and pages[-1].is_complete) and len(pages) < 10:
        pages.append(await two.sweep(LEASE))
        await deliver(120)

    assert [page.is_complete for page in pages] == [False, True]


@pytest.mark.each_server
@pytest.mark.parametrize("end", [None, "", "none", "1-", "0-0", "18446744073709551615-18446744073709551615"])
async def test_a_sweep_that_another_release_began_or_left_goes_on(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys, end: str | None
) -> None:
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(150)))
    await redis.hset(keys.maintenance, mapping={"express_cursor": "done", "cursor": held[20]})
    if end is not None:
        await redis.hset(keys.maintenance, mapping={"express_end": end, "end": end})
    await redis.xclaim(keys.stream, GROUP, "gone", 0, held[-1:], justid=True)
    await redis.xgroup_delconsumer(keys.stream, GROUP, "gone")

    restored = await sweep(two, LEASE) + await sweep(two, LEASE)

    assert restored == 1, "an end that an older release has left behind ends one sweep early, and not the next"


@pytest.mark.each_server
async def test_what_is_released_while_the_group_of_the_other_lane_is_gone_is_counted(
    two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await redis.xadd(keys.express, {"order_id": "urgent"})
    await redis.xreadgroup(GROUP, "one", {keys.express: ">"})
    await redis.xclaim(keys.express, GROUP, "one", 0, [held], idle=int(2000 * LEASE), justid=True)
    await redis.xgroup_destroy(keys.stream, GROUP)

    assert (await two.sweep(LEASE)).released == 1


@pytest.mark.each_server
async def test_a_group_that_was_set_back_is_swept_up_to_where_it_is_now(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, *(f"order-{number}" for number in range(150)))
    assert not (await two.sweep(LEASE)).is_complete

    await redis.xgroup_setid(keys.stream, GROUP, held[119])
    await redis.xclaim(keys.stream, GROUP, "gone", 0, held[110:], justid=True)
    await redis.xgroup_delconsumer(keys.stream, GROUP, "gone")

    assert await sweep(two, LEASE) == 10, "entries after the position of the group are read again"
    assert ids(await one.read(MOST, NOW))[-30:] == held[120:]


@pytest.mark.each_server
async def test_an_entry_that_is_still_worked_on_when_it_is_put_back_is_finished_once(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    await redis.xgroup_delconsumer(keys.stream, GROUP, "one")

    early = await one.ack(refs(keys, held))
    await sweep(two, LEASE)
    late = await one.ack(refs(keys, held))

    assert (early, late) == (0, 0), "it is not one's any more: it comes again, and changes nothing"
    assert ids((await two.claim_abandoned(1)).released) == held
    assert await one.renew(refs(keys, held)) == set(refs(keys, held))


# -- nothing is deleted that is not settled ---------------------------------------------------------------------


async def test_while_our_own_group_is_gone_nothing_is_trimmed_that_another_has_finished(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xgroup_create(keys.stream, "audit", id="0")
    held = await hold(one, redis, keys, *"abc")
    await one.ack(refs(keys, held[:1]))
    reply = await redis.xreadgroup("audit", "auditor", {keys.stream: ">"})
    assert len(next(iter(reply))[1] if isinstance(reply, list) else next(iter(reply.values()))[0]) == len(held)
    await redis.xack(keys.stream, "audit", *held)
    await redis.xgroup_destroy(keys.stream, GROUP)

    assert await one.trim(MOST) == 0

    assert set(await left(redis, keys)) >= set(held[1:])
    assert set(held[1:]) <= set(ids(await one.read(10, NOW)))


async def test_a_group_that_was_created_since_the_groups_were_listed_loses_no_entry(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xgroup_create(keys.stream, "audit", id="0")
    await one.ack(refs(keys, await hold(one, redis, keys, "a")))

    deleted = await load(redis, "trim")([keys.stream, keys.settled], [GROUP, "one", 10])

    assert deleted == -1
    assert len(await left(redis, keys)) == 1


async def test_an_entry_that_is_held_is_not_claimed_by_the_note_of_an_earlier_release(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a")
    # A consumer that claims its own entry again leaves the note of its release.
    await redis.zadd(keys.released, {held[0]: 1})

    assert not (await two.claim_abandoned(10)).released

    assert (await pending(redis, keys))[held[0]] == ("one", 1)


async def test_what_a_group_that_was_set_back_reads_again_is_kept_for_it(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xgroup_create(keys.stream, "audit", id="0")
    held = await hold(one, redis, keys, "a", "b", "c")
    await one.ack(refs(keys, held))
    await redis.xreadgroup("audit", "auditor", {keys.stream: ">"})
    await redis.xack(keys.stream, "audit", *held[:2])
    await redis.xgroup_setid(keys.stream, "audit", "0")

    assert await one.trim(MOST) == 0

    assert await left(redis, keys) == held


async def test_a_group_that_was_made_again_has_settled_nothing(one: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.xgroup_create(keys.stream, "audit", id="0")
    held = await hold(one, redis, keys, *"ab")
    await one.ack(refs(keys, held))
    await redis.xgroup_destroy(keys.stream, GROUP)
    await one.ensure_group()
    await redis.xgroup_destroy(keys.stream, "audit")

    assert await one.trim(MOST) == 0

    assert ids(await one.read(10, NOW)) == held


# -- who may reclaim ----------------------------------------------------------------------------------------------


@pytest.mark.each_server
async def test_a_read_claims_nothing_that_somebody_holds_however_long_it_was_idle(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    idle, released = await hold(one, redis, keys, "idle", "released")
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "one")
    await age(redis, keys, "one", [idle], 365 * 24 * 3600.0)
    await one.release(await as_read(redis, keys, [released]))

    taken = await two.read(10, NOW) + (await two.claim_abandoned(0)).released

    assert idle not in ids(taken)
    assert (await pending(redis, keys))[idle] == ("one", 1)


@pytest.mark.each_server
async def test_what_is_released_already_the_sweep_neither_counts_nor_moves(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    idle, released, idle_too = await hold(one, redis, keys, "a", "b", "c")
    await one.release(await as_read(redis, keys, [released]))
    await age(redis, keys, "one", [idle, idle_too], 2 * LEASE)
    before = (await pending(redis, keys))[released]

    found = [(await two.sweep(LEASE)).released for _ in range(2)]

    assert found == [2, 0]
    assert (await pending(redis, keys))[released] == before


@pytest.mark.each_server
async def test_what_was_released_without_a_note_is_found_by_the_sweep(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await one.release(await as_read(redis, keys, held))
    await redis.delete(keys.released)

    assert (await two.claim_abandoned(10)).released == []
    assert ids(await claim_idle(two, 10, LEASE)) == held


@pytest.mark.each_server
async def test_junk_among_the_released_ones_is_cleared_away(one: Consumer, redis: Redis, keys: Keys) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await one.release(await as_read(redis, keys, held[:1]))
    await redis.zadd(keys.released, {"junk": 0, "1-1": 0, held[1]: 0})

    taken = (await one.claim_abandoned(10)).released

    assert ids(taken) == held[:1]
    assert await redis.zcard(keys.released) == 0
    assert (await pending(redis, keys))[held[1]] == ("one", 1)


# -- the clock --------------------------------------------------------------------------------------------------


async def test_the_queues_clock_does_not_go_back_when_the_servers_does(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    before = (await one.heartbeat(LIFETIME)).now
    # As if the server's clock had been an hour ahead until now.
    await redis.hset(keys.clock, "latest", int((before + 3600) * 1000))

    times = [(await who.heartbeat(LIFETIME)).now for who in (two, one, two, one)]

    assert times == sorted(times)
    assert times[0] >= before + 3600
    seconds, _ = await redis.time()
    assert times[-1] < seconds + 3601 + 60, "it goes on from there at its own pace"


async def test_what_the_clock_is_ahead_it_loses_slowly_and_never_jumps_back(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    now = (await one.heartbeat(LIFETIME)).now
    await redis.hset(keys.clock, mapping={"ahead": 500_000, "noted_at": int((now - 20_000) * 1000), "latest": 1})

    # 20,000 s have taken 200 s off the 500 s.
    assert 299 < (await one.heartbeat(LIFETIME)).now - now < 300 + 60


async def test_the_queues_clock_continues_when_the_servers_is_set_ahead(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    now = (await one.heartbeat(LIFETIME)).now
    # As if the server's clock had been 20 s behind until now.
    await redis.hset(keys.clock, "latest", int((now - 20) * 1000))

    held = (await one.heartbeat(LIFETIME, lambda: (now - 20, now - 19))).now
    newcomer = (await two.heartbeat(LIFETIME)).now

    assert now - 20 <= held < now - 10
    assert held <= newcomer < held + 10


async def test_a_retry_is_not_late_by_as_much_as_the_servers_clock_is_set_ahead(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await redis.xadd(keys.stream, {"order_id": "a"})
    [delivery] = await one.read(1, 0.001)
    now = (await one.heartbeat(LIFETIME)).now
    # As if the server's clock had been an hour behind until now.
    await redis.hset(keys.clock, "latest", int((now - 3600) * 1000))

    await one.reschedule(delivery, 10.0, 2)
    await one.heartbeat(LIFETIME, lambda: (now - 3600, now - 3599))

    assert await redis.zscore(keys.retry, delivery.entry.id) <= (now - 3600 + 10 + 60) * 1000


async def test_the_queues_clock_continues_at_a_server_whose_clock_is_behind(one: Consumer, two: Consumer) -> None:
    now = (await one.heartbeat(LIFETIME)).now
    advanced = (await one.heartbeat(LIFETIME, lambda: (now + 60, now + 61))).now
    newcomer = (await two.heartbeat(LIFETIME)).now
    # Its machine was paused, so it assumes the time from before. Another one has just put the clock forward.
    paused = (await two.heartbeat(LIFETIME, lambda: (now, now + 1))).now

    assert now + 60 <= advanced <= newcomer <= paused


async def test_a_heartbeat_that_was_delayed_on_its_way_does_not_put_the_queues_clock_back(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    now = (await one.heartbeat(LIFETIME)).now
    await redis.hset(keys.clock, "latest", int((now - 20) * 1000))
    # The time at which it was sent, and the time at which the reply has come.
    times = iter([(now - 20, now - 19), (now, now + 60)])

    assert (await one.heartbeat(LIFETIME, lambda: next(times))).now >= now
    assert not await redis.hexists(keys.clock, "ahead")


async def test_of_two_processes_that_see_a_jump_one_puts_the_clock_back(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    now = (await one.heartbeat(LIFETIME)).now
    await redis.hset(keys.clock, "latest", int((now - 40) * 1000))

    found = await asyncio.gather(*(each.heartbeat(LIFETIME, lambda: (now - 20, now - 10)) for each in (one, two)))

    assert all(now - 21 <= each.now <= now for each in found)


async def test_a_process_whose_time_is_within_its_bounds_changes_nothing(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    now = (await one.heartbeat(LIFETIME)).now
    for around in ((now - 5, now + 60), (now - 1, now - 0.5)):
        assert now <= (await one.heartbeat(LIFETIME, lambda around=around: around)).now < now + 60
    assert not await redis.hexists(keys.clock, "ahead")


async def test_junk_in_the_clock_is_read_as_nothing(one: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.hset(keys.clock, mapping={"ahead": "x", "noted_at": "", "latest": "never"})
    seconds, _ = await redis.time()

    assert seconds <= (await one.heartbeat(LIFETIME)).now < seconds + 60


async def test_a_clock_that_went_back_delays_no_retry_and_hides_no_death(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = await hold(one, redis, keys, "a", "b")
    await keep_alive(redis, keys, one, two)
    await redis.hset(keys.clock, "latest", int(((await one.heartbeat(LIFETIME)).now + 3600) * 1000))
    (later,) = delivered(keys, held[:1], "a")
    ahead = (await two.heartbeat(7200)).now
    await has_been_heard_long_enough(redis, keys, "two")
    await one.reschedule(later, 0.0, 2)
    await redis.zadd(keys.alive, {"one": (ahead - 1) * 1000})

    assert await two.move_due(10) == 1
    assert ids((await two.claim_abandoned(10)).dead) == held[1:]


def other_group(url: str, queue: str) -> AbstractAsyncContextManager[Consumer]:
    return Consumer.open(url, queue, "audit", "auditor", block=1.0)


# -- several groups ---------------------------------------------------------------------------------------------


@pytest.mark.each_server
async def test_what_one_group_has_lost_is_not_deleted_because_another_has_settled_it(
    one: Consumer, redis: Redis, redis_url: str, queue_name: str, keys: Keys
) -> None:
    async with other_group(redis_url, queue_name) as two:
        await two.ensure_group()
        await two.heartbeat(LIFETIME)
        await one.heartbeat(LIFETIME)
        held = await hold(one, redis, keys, "a", "b")
        assert ids(await two.read(10, NOW)) == held
        await redis.xgroup_delconsumer(keys.stream, "audit", "auditor")

        assert await one.ack(refs(keys, held)) == 2
        assert await one.trim(MOST) == 0

        assert await sweep(two, LEASE) == 2
        again = ids((await two.claim_abandoned(10)).released)
        assert sorted(again) == held
        assert await two.ack(refs(keys, held)) == 2
        assert await one.trim(MOST) + await two.trim(MOST) > 0
    assert await left(redis, keys) == []


async def test_each_group_retries_and_dead_letters_for_itself(
    one: Consumer, redis: Redis, redis_url: str, queue_name: str, keys: Keys
) -> None:
    async with other_group(redis_url, queue_name) as two:
        await two.ensure_group()
        await redis.xadd(keys.stream, {"order_id": "a", "tenant": "x"})
        for attempt in range(2, 12):
            for consumer in (one, two):
                [delivery] = await consumer.read(10, NOW)
                assert delivery.attempt == attempt - 1
                await consumer.reschedule(delivery, 0.0, attempt)
            for consumer in (one, two):
                assert await consumer.move_due(10) == 1
        for consumer in (one, two):
            [delivery] = await consumer.read(10, NOW)
            assert delivery.fields[b"tenant"] == b"x"
            await consumer.dead_letter(delivery, DeadReason.ATTEMPTS_EXHAUSTED, "no")
            assert await consumer.read(10, NOW) == []
        for consumer in (one, two):
            await consumer.trim(MOST)

    theirs = Keys.of(queue_name, "audit")
    assert (await redis.xlen(keys.dead), await redis.xlen(theirs.dead)) == (1, 1)
    assert await redis.xlen(keys.stream) == 0
    assert (keys.retry, keys.dead) == (f"ingest:{{{queue_name}}}:retry", f"ingest:{{{queue_name}}}:dead")


async def test_a_retry_for_another_group_is_finished_unseen_and_cut_off_there_comes_again(
    one: Consumer, redis: Redis, redis_url: str, queue_name: str, keys: Keys
) -> None:
    async with other_group(redis_url, queue_name) as two:
        await two.ensure_group()
        await redis.xadd(keys.stream, {"order_id": "a", "ingest_group": "audit"})
        # The reply of the read was lost: the entry is pending here.
        await redis.xreadgroup(GROUP, "one", {keys.stream: ">"})

        assert await one.claim_own(10, []) == []
        assert await pending(redis, keys) == {}
        assert [delivery.order_id for delivery in await two.read(10, NOW)] == ["a"]


@pytest.mark.each_server
async def test_a_sweep_makes_a_missing_group_again(one: Consumer, redis: Redis, keys: Keys) -> None:
    await redis.xgroup_destroy(keys.stream, GROUP)

    assert (await one.sweep(LEASE)).restored == 0

    with pytest.raises(ResponseError, match="BUSYGROUP"):
        await redis.xgroup_create(keys.stream, GROUP, id="0")
