"""The two lanes of a queue. The express lane is read first, neither starves, and both keep all guarantees."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import pytest
from consumers import Consumer
from contract.heartbeating import (
    LEASE,
    LIFETIME,
    NOW,
    connect,
    has_been_heard_long_enough,
    heartbeats_end,
    ids,
    keep_alive,
)
from redelivery import claim_dead, claim_idle, sweep
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef
from ingest.domain.errors import QueueUnavailable
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer

pytestmark = pytest.mark.topologies

GROUP = "ingest"
_FILL = """
for number = 1, ARGV[1] do
  redis.call('XADD', KEYS[1], '*', 'order_id', ARGV[2] .. number)
end
"""
LANES = ("express", "stream")


async def fill(redis: Redis, stream: str, count: int, prefix: str) -> None:
    """Add entries for orders whose IDs begin with the prefix."""
    await redis.eval(_FILL, 1, stream, str(count), prefix)  # type: ignore[misc]


async def add(redis: Redis, stream: str, order_id: str, entry_id: str = "*") -> EntryRef:
    added: bytes = await redis.xadd(stream, {"order_id": order_id}, id=entry_id)
    return EntryRef(stream, added.decode())


async def pending(redis: Redis, keys: Keys) -> dict[EntryRef, tuple[str, int]]:
    """Owner and delivery count of each pending entry of both lanes."""
    found = {}
    for stream in (keys.express, keys.stream):
        for row in await redis.xpending_range(stream, GROUP, "-", "+", 10_000):
            owner = row["consumer"].decode()
            found[EntryRef(stream, row["message_id"].decode())] = (owner, row["times_delivered"])
    return found


def orders(deliveries: list[Delivery]) -> list[str | None]:
    return [delivery.order_id for delivery in deliveries]


def from_main(deliveries: list[Delivery], keys: Keys) -> int:
    return sum(delivery.entry.stream == keys.stream for delivery in deliveries)


async def read_one_of_each(consumer: Consumer, redis: Redis, keys: Keys, entry_id: str = "5-1") -> list[Delivery]:
    """Let a consumer hold an entry of each lane, both with the same ID, and return the express lane's first."""
    await add(redis, keys.express, "urgent", entry_id)
    await add(redis, keys.stream, "ordinary", entry_id)
    taken = await consumer.read(2, NOW)
    assert orders(taken) == ["urgent", "ordinary"]
    return taken


# -- reading ------------------------------------------------------------------------------------------------------


async def test_a_retry_that_is_due_is_read_next_however_many_are_queued(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await add(redis, keys.stream, "retried")
    [delivery] = await one.read(1, NOW)
    await fill(redis, keys.stream, 100_000, "queued")
    await one.reschedule(delivery, 0.0, 2)

    assert await one.move_due(10) == 1

    [again] = await one.read(1, NOW)
    assert (again.order_id, again.attempt, again.entry.stream) == ("retried", 2, keys.express)


@pytest.mark.parametrize("count", [1, 3, 10, 100])
async def test_while_both_lanes_have_a_backlog_a_tenth_of_what_is_read_is_the_main_lanes(
    one: Consumer, redis: Redis, keys: Keys, count: int
) -> None:
    await fill(redis, keys.stream, 1_000, "queued")
    await fill(redis, keys.express, 1_000, "express")

    taken: list[Delivery] = []
    while len(taken) < 300:
        taken += await one.read(count, NOW)

    assert 0.08 * len(taken) <= from_main(taken, keys) <= 0.12 * len(taken)


async def test_the_main_lane_gets_all_room_that_the_express_lane_leaves(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    await fill(redis, keys.stream, 100, "queued")
    await fill(redis, keys.express, 15, "express")

    sizes = [len(await one.read(10, NOW)) for _ in range(11)]

    assert sum(sizes) >= 105
    assert all(size == 10 for size in sizes[:-1])


async def test_the_entries_of_each_lane_are_read_in_order(one: Consumer, redis: Redis, keys: Keys) -> None:
    await fill(redis, keys.stream, 30, "queued")
    await fill(redis, keys.express, 30, "express")
    taken: list[Delivery] = []
    while len(taken) < 60 and (new := await one.read(5, NOW)):
        taken += new

    express = [name for name in orders(taken) if str(name).startswith("express")]
    assert express == [f"express{number}" for number in range(1, 31)]


@pytest.mark.parametrize("count", [1, 7])
async def test_never_more_is_kept_than_asked_for_and_the_rest_is_free_for_others_and_uncounted(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys, count: int
) -> None:
    await fill(redis, keys.stream, 20, "queued")
    await fill(redis, keys.express, 4, "express")

    taken = await one.read(count, NOW)

    assert len(taken) == count
    held = {delivery.entry for delivery in taken}
    others = {entry: count for entry, (_, count) in (await pending(redis, keys)).items() if entry not in held}
    assert set(others.values()) <= {0}, "a delivery that did not happen is not counted"
    rest = [*(await two.claim_abandoned(100)).released]
    while new := await two.read(100, NOW):
        rest += new
    assert {delivery.count for delivery in rest} == {1}
    assert len({delivery.entry for delivery in rest} | held) == 24
    assert not {delivery.entry for delivery in rest} & held


async def test_an_express_lane_that_is_empty_costs_no_command_more(own_redis: Redis) -> None:
    keys = Keys.of("orders")
    host = own_redis.connection_pool.connection_kwargs
    url = f"redis://:{host['password']}@{host['host']}:{host['port']}/0"
    async with connect(url, "orders", "one") as consumer:
        await consumer.ensure_group()
        await fill(own_redis, keys.stream, 100, "queued")
        await consumer.read(1, NOW)
        await own_redis.config_resetstat()

        for _ in range(5):
            assert len(await consumer.read(10, NOW)) == 10

        calls = {name: about["calls"] for name, about in (await own_redis.info("commandstats")).items()}
    assert {name: count for name, count in calls.items() if "config" not in name} == {"cmdstat_xreadgroup": 5}


async def is_blocking(redis: Redis) -> bool:
    return bool((await redis.info("clients"))["blocked_clients"])


@pytest.mark.topologies("standalone")
@pytest.mark.parametrize("lane", LANES)
async def test_a_blocked_read_wakes_up_for_either_lane(one: Consumer, redis: Redis, keys: Keys, lane: str) -> None:
    stream = getattr(keys, lane)
    reading = asyncio.create_task(one.read(10, 60.0))
    await eventually(lambda: is_blocking(redis))

    added = await add(redis, stream, "a")

    assert [delivery.entry for delivery in await reading] == [added]


async def test_when_both_lanes_are_empty_again_a_read_waits(one: Consumer, redis: Redis, keys: Keys) -> None:
    await fill(redis, keys.express, 5, "express")
    assert len(await one.read(5, NOW)) == 5

    assert await one.read(5, 0.05) == []
    assert await one.read(5, 0.05) == []

    added = await add(redis, keys.stream, "a")
    assert [delivery.entry for delivery in await one.read(5, NOW)] == [added]


class CannotRelease(Consumer):
    async def release(self, deliveries: Sequence[Delivery]) -> int:
        del deliveries
        raise QueueUnavailable("the connection was lost")


@pytest.mark.parametrize("is_counted", [False, True])
async def test_what_was_read_beyond_the_room_and_could_not_be_released_is_found_again(
    one: Consumer, redis: Redis, keys: Keys, redis_url: str, queue_name: str, *, is_counted: bool
) -> None:
    await fill(redis, keys.stream, 5, "queued")
    await fill(redis, keys.express, 5, "express")
    async with CannotRelease.open(redis_url, queue_name, GROUP, "one", block=1.0) as consumer:
        with pytest.raises(QueueUnavailable):
            await consumer.read(5, NOW)

    # By the same process, which lost the reply, or by its successor, for which this is another delivery.
    found: list[Delivery] = []
    while own := await one.claim_own(3, [delivery.entry for delivery in found], counted=is_counted):
        found += own
    assert len(found) == 10
    assert {delivery.count for delivery in found} == {1 + is_counted}


# -- the group ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("loss", ["the stream", "the group", "everything"])
async def test_a_group_that_one_lane_has_lost_is_created_there_again_and_the_other_lane_goes_on(
    one: Consumer, redis: Redis, keys: Keys, lane: str, loss: str
) -> None:
    lost, other = (keys.express, keys.stream) if lane == "express" else (keys.stream, keys.express)
    held = [delivery.entry for delivery in await read_one_of_each(one, redis, keys)]
    if loss == "everything":
        await redis.flushdb()
    else:
        await (redis.delete(lost) if loss == "the stream" else redis.xgroup_destroy(lost, GROUP))
    added = {await add(redis, stream, "new") for stream in (lost, other)}

    taken = await one.read(10, NOW)
    taken += await one.read(10, NOW)

    assert {delivery.entry for delivery in taken} >= added
    assert await one.ack(held) >= (loss != "everything")


@pytest.mark.each_server
async def test_the_state_of_a_release_without_an_express_lane_is_read(
    redis: Redis, keys: Keys, redis_url: str, queue_name: str
) -> None:
    await redis.xgroup_create(keys.stream, GROUP, id="0", mkstream=True)
    held, new = await add(redis, keys.stream, "held"), await add(redis, keys.stream, "new")
    await redis.xreadgroup(GROUP, "one", {keys.stream: ">"}, count=1)
    await redis.hset(keys.maintenance, "cursor", held.id)  # type: ignore[misc]

    async with connect(redis_url, queue_name, "one") as consumer:
        own = await consumer.claim_own(10, [])
        await consumer.heartbeat(LIFETIME)
        await sweep(consumer, LEASE)
        taken = await consumer.read(10, NOW)
        assert await consumer.ack([*(delivery.entry for delivery in own), *(delivery.entry for delivery in taken)]) == 2

    assert ([delivery.entry for delivery in own], [delivery.entry for delivery in taken]) == ([held], [new])


# -- one ID in two lanes ------------------------------------------------------------------------------------------

ENDS: dict[str, Callable[[Consumer, Delivery], Awaitable[object]]] = {
    "ack": lambda consumer, delivery: consumer.ack([delivery.entry]),
    "reschedule": lambda consumer, delivery: consumer.reschedule(delivery, 3600.0, 2),
    "dead_letter": lambda consumer, delivery: consumer.dead_letter(delivery, DeadReason.REJECTED, "no"),
    "release": lambda consumer, delivery: consumer.release([delivery]),
}


@pytest.mark.each_server
@pytest.mark.parametrize("ended", [0, 1], ids=LANES)
@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
async def test_what_ends_an_entry_of_one_lane_leaves_the_others_entry_of_that_id_alone(
    one: Consumer, redis: Redis, keys: Keys, end: Callable[[Consumer, Delivery], Awaitable[object]], ended: int
) -> None:
    taken = await read_one_of_each(one, redis, keys)
    kept = taken[1 - ended]

    assert await end(one, taken[ended])

    assert (await pending(redis, keys))[kept.entry] == ("one", 1)
    assert await redis.xlen(kept.entry.stream) == 1
    assert await one.ack([kept.entry]) == 1


async def seen(redis: Redis, keys: Keys) -> int:
    """How often orders became dead letters."""
    return sum(int([*value.split(), b"1"][1]) for value in await redis.hvals(keys.dead_seen))


@pytest.mark.each_server
@pytest.mark.parametrize("move", ["reschedule", "dead_letter"])
async def test_entries_of_both_lanes_with_one_id_and_order_are_both_moved_and_each_once(
    one: Consumer, redis: Redis, keys: Keys, move: str
) -> None:
    for stream in (keys.express, keys.stream):
        await add(redis, stream, "same", "5-1")
    taken = await one.read(2, NOW)

    moved = [await ENDS[move](one, delivery) for delivery in [*taken, *taken]]

    assert moved == [True, True, False, False]
    # The second entry of the same order with the same reason is counted by the first one's dead letter.
    assert await redis.zcard(keys.retry) + await seen(redis, keys) == 2


async def test_a_retry_of_an_express_entry_is_an_express_entry_again_and_keeps_its_age(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    urgent, _ = await read_one_of_each(one, redis, keys)
    await one.reschedule(urgent, 0.0, 2)
    assert await one.move_due(10) == 1

    [again] = await one.read(10, NOW)

    assert (again.order_id, again.attempt, again.entry.stream, again.enqueued_at) == ("urgent", 2, keys.express, 0.005)


async def test_leases_are_renewed_and_lost_by_lane(one: Consumer, two: Consumer, redis: Redis, keys: Keys) -> None:
    urgent, ordinary = (delivery.entry for delivery in await read_one_of_each(one, redis, keys))
    await redis.xclaim(urgent.stream, GROUP, two.name, 0, [urgent.id], justid=True)

    assert await one.renew([urgent, ordinary]) == {urgent}
    assert await one.ack([urgent, ordinary]) == 1


async def test_entries_of_both_lanes_that_a_process_does_not_know_are_found(
    one: Consumer, redis: Redis, keys: Keys
) -> None:
    urgent, ordinary = (delivery.entry for delivery in await read_one_of_each(one, redis, keys))

    assert [delivery.entry for delivery in await one.claim_own(10, [urgent])] == [ordinary]
    assert [delivery.entry for delivery in await one.claim_own(10, [ordinary])] == [urgent]
    assert await one.claim_own(10, [urgent, ordinary]) == []


# -- entries of other consumers ----------------------------------------------------------------------------------------


async def test_a_dead_consumers_entries_of_both_lanes_are_claimed_and_it_is_removed_from_both(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    held = {delivery.entry for delivery in await read_one_of_each(two, redis, keys)}
    await keep_alive(redis, keys, one, two)
    await heartbeats_end(redis, keys, "two")

    taken = await claim_dead(one, 1)
    assert len(taken) == 1
    taken += await claim_dead(one, 10)
    assert await claim_dead(one, 10) == []

    assert {delivery.entry for delivery in taken} == held
    for stream in (keys.express, keys.stream):
        assert b"two" not in {row["name"] for row in await redis.xinfo_consumers(stream, GROUP)}


@pytest.mark.parametrize("lane", [0, 1], ids=LANES)
async def test_a_consumer_that_holds_an_entry_in_one_lane_only_is_not_removed(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys, lane: int
) -> None:
    taken = await read_one_of_each(two, redis, keys)
    held = taken.pop(lane).entry
    await two.ack([delivery.entry for delivery in taken])

    assert await one.remove_stale(0.0) == 0
    assert await two.leave() == 1

    await keep_alive(redis, keys, one)
    assert [delivery.entry for delivery in await claim_dead(one, 10)] == [held]


async def test_a_consumer_that_holds_nothing_leaves_both_lanes(two: Consumer, redis: Redis, keys: Keys) -> None:
    taken = await read_one_of_each(two, redis, keys)
    await two.ack([delivery.entry for delivery in taken])

    assert await two.leave() == 0

    for stream in (keys.express, keys.stream):
        assert b"two" not in {row["name"] for row in await redis.xinfo_consumers(stream, GROUP)}


async def test_the_sweep_goes_through_both_lanes(one: Consumer, two: Consumer, redis: Redis, keys: Keys) -> None:
    for stream in (keys.express, keys.stream):
        await fill(redis, stream, 150, "order")
    held = await two.read(300, NOW)
    assert len(held) == 300
    idle, lost = {}, {}
    for stream in (keys.express, keys.stream):
        entries = [delivery.entry for delivery in held if delivery.entry.stream == stream]
        idle[stream], lost[stream] = entries[140], entries[145]
        await redis.xclaim(stream, GROUP, "two", 0, [idle[stream].id], idle=int(2 * LEASE * 1000), justid=True)
        await redis.xack(stream, GROUP, lost[stream].id)

    taken = await claim_idle(one, 100, LEASE)

    assert {delivery.entry for delivery in taken} == {*idle.values(), *lost.values()}
    assert {delivery.entry: delivery.count for delivery in taken} == {
        **dict.fromkeys(idle.values(), 2),
        **dict.fromkeys(lost.values(), 1),
    }


@pytest.mark.each_server
async def test_what_was_released_in_both_lanes_is_claimed_up_to_the_count_and_the_express_lane_first(
    one: Consumer, two: Consumer, redis: Redis, keys: Keys
) -> None:
    for stream in (keys.stream, keys.express):
        await fill(redis, stream, 3, stream)
    held = await two.read(6, NOW)
    assert await two.release(held) == 6

    first, second = [(await one.claim_abandoned(count)).released for count in (4, 10)]

    assert (from_main(first, keys), len(first)) == (1, 4)
    assert (from_main(second, keys), len(second)) == (2, 2)
    assert {delivery.count for delivery in [*first, *second]} == {1}


# -- a second group -----------------------------------------------------------------------------------------------


@pytest.fixture
async def auditor(one: Consumer, redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    del one
    async with Consumer.open(redis_url, queue_name, "audit", "auditor", block=1.0) as consumer:
        await consumer.ensure_group()
        yield consumer


async def test_a_second_group_reads_both_lanes_and_what_both_have_finished_is_deleted(
    one: Consumer, auditor: Consumer, redis: Redis, keys: Keys
) -> None:
    taken = await read_one_of_each(one, redis, keys)
    await one.ack([delivery.entry for delivery in taken])
    assert [await redis.xlen(stream) for stream in (keys.express, keys.stream)] == [1, 1]

    audited = await auditor.read(10, NOW)
    assert ids(audited) == ids(taken)
    await auditor.ack([delivery.entry for delivery in audited])
    await one.heartbeat(LIFETIME)
    await auditor.heartbeat(LIFETIME)

    assert await one.trim(10) == 2
    assert [await redis.xlen(stream) for stream in (keys.express, keys.stream)] == [0, 0]


async def test_a_retry_of_one_group_is_not_handed_to_the_other(
    one: Consumer, auditor: Consumer, redis: Redis, keys: Keys
) -> None:
    await add(redis, keys.stream, "a")
    [delivery] = await one.read(1, NOW)
    assert orders(await auditor.read(10, NOW)) == ["a"]
    await one.reschedule(delivery, 0.0, 2)
    assert await one.move_due(10) == 1

    assert await auditor.read(10, NOW) == []
    assert orders(await one.read(10, NOW)) == ["a"]


@pytest.mark.each_server
async def test_what_a_group_lost_in_an_express_lane_is_kept_for_it_until_its_sweep(
    one: Consumer, auditor: Consumer, redis: Redis, keys: Keys, queue_name: str
) -> None:
    taken = await read_one_of_each(one, redis, keys)
    await auditor.read(10, NOW)
    await auditor.heartbeat(LIFETIME)
    await redis.xgroup_delconsumer(keys.express, "audit", "auditor")
    await one.ack([delivery.entry for delivery in taken])

    assert await one.trim(10) == 0
    await has_been_heard_long_enough(redis, Keys.of(queue_name, "audit"), "auditor")
    assert await sweep(auditor, LEASE) == 1
    assert orders((await auditor.claim_abandoned(10)).released) == ["urgent"]


async def test_documents_are_accepted_one_after_the_other_over_both_lanes(
    redis: Redis, keys: Keys, queue_name: str
) -> None:
    producer = Producer(redis, queue_name)
    lanes = [bool(number % 3) for number in range(30)]

    for is_express in lanes:
        await producer.enqueue([Announcement("a", document=b"{}"), "b"], express=is_express)

    accepted = {}
    for stream in (keys.express, keys.stream):
        entries = await redis.xrange(stream)
        accepted[stream] = [int(fields[b"pushed_at"]) for _, fields in entries if fields[b"order_id"] == b"a"]
        assert not any(b"pushed_at" in fields for _, fields in entries if fields[b"order_id"] == b"b")
    times = {is_express: iter(accepted[keys.express if is_express else keys.stream]) for is_express in (True, False)}
    in_order = [next(times[is_express]) for is_express in lanes]
    assert in_order == sorted(set(in_order))
