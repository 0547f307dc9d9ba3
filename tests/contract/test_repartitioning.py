"""A changed number of partitions on real servers. Orders in former partitions are processed, and their dead letters move."""

from collections.abc import Awaitable, Callable
from typing import Any
from zlib import crc32

import pytest
from contract.heartbeating import GROUP, NOW, connect
from dead_letter_entries import dead_fields
from redis.asyncio import Redis

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.domain.partitions import Layout, partition_queue
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.erasing import PartitionEraser
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.partitions.change_hold import ChangeHold, HeldChange
from ingest.queue.partitions.draining import ChangedMeanwhile, Draining
from ingest.queue.partitions.layout_record import LayoutRecord, layout_key
from ingest.queue.partitions.repartitioning import Repartitioning
from ingest.queue.produce.partition_producer import PartitionProducer, ProducerOptions
from ingest.queue.produce.producer_errors import QueueClosed
from ingest.queue.produce.submission import submissions
from ingest.queue.redis.scripts import load

pytestmark = pytest.mark.topologies

ORDERS = [f"order-{number}" for number in range(40)]


@pytest.fixture
def repartitioning(redis: Redis, queue_name: str) -> Repartitioning:
    return on(redis, queue_name)


def on(redis: Redis, queue: str) -> Repartitioning:
    return Repartitioning(redis, LayoutRecord(redis, queue), GROUP, 60.0)


async def dead_orders(redis: Redis, queue: str) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in await redis.xrange(Keys.of(queue).dead)]


async def dead_letter(redis: Redis, queue: str, *order_ids: str) -> None:
    for order_id in order_ids:
        await redis.xadd(Keys.of(queue).dead, dead_fields(order_id))


async def work_off(redis_url: str, queue: str) -> list[str]:
    """Process all entries of a queue, and return their orders."""
    async with connect(redis_url, queue, "one") as consumer:
        await consumer.ensure_group()
        deliveries = [each for _ in range(2) for each in await consumer.read(100, NOW)]
        await consumer.ack([each.entry for each in deliveries])
    return [str(each.order_id) for each in deliveries]


async def test_a_change_is_complete_when_the_former_queue_is_processed(
    redis: Redis, redis_url: str, queue_name: str, repartitioning: Repartitioning
) -> None:
    await redis.xadd(Keys.of(queue_name).stream, {"order_id": "a"})

    begun = await repartitioning.begin(6)
    waiting = await repartitioning.drain()
    done = await work_off(redis_url, queue_name)
    ended = await repartitioning.drain()

    assert begun == Layout(queue_name, 6, (1,), 1)
    assert (waiting.entries, waiting.waiting_for, waiting.is_complete) == (1, [queue_name], False)
    assert done == ["a"]
    assert (ended.layout, ended.is_complete) == (Layout(queue_name, 6, (), 2), True)


async def test_a_retry_keeps_its_former_partition(
    redis: Redis, redis_url: str, queue_name: str, repartitioning: Repartitioning
) -> None:
    await redis.xadd(Keys.of(queue_name).stream, {"order_id": "a"})
    async with connect(redis_url, queue_name, "one") as consumer:
        await consumer.ensure_group()
        [delivery] = await consumer.read(1, NOW)
        await repartitioning.begin(6)
        in_flight = await repartitioning.drain()
        await consumer.reschedule(delivery, 0.0, 2, RetryReason.TIMEOUT, "no response")
        retried = await repartitioning.drain()
        await consumer.move_due(10)
        due = await repartitioning.drain()

        assert [(each.entries, each.retries) for each in (in_flight, retried, due)] == [(1, 0), (0, 1), (1, 0)]
        assert not any(each.is_complete for each in (in_flight, retried, due))

        await consumer.ack([each.entry for each in await consumer.read(1, NOW)])
    assert (await repartitioning.drain()).is_complete


async def test_dead_letters_move_to_the_partition_of_their_order_with_all_their_fields(
    redis: Redis, queue_name: str, repartitioning: Repartitioning
) -> None:
    fields, former = (
        dead_fields("a", "not_found", document="{}", other="kept", ingest_seen_key="k"),
        Keys.of(queue_name),
    )
    first: bytes = await redis.xadd(former.dead, fields)  # type: ignore[arg-type]
    await redis.hset(former.dead_seen, "k", first + b" 8 1700000000000 5")  # type: ignore[misc]
    await dead_letter(redis, queue_name, *ORDERS)

    layout = await repartitioning.begin(6)
    moved = [(await repartitioning.drain()).moved for _ in range(2)]

    assert moved == [len(ORDERS) + 1, 0]
    assert await dead_orders(redis, queue_name) == []
    for queue in layout.current:
        expected = [each for each in ["a", *ORDERS] if layout.queue_of_order(each) == queue]
        assert await dead_orders(redis, queue) == expected
    [(entry_id, kept)] = await redis.xrange(Keys.of(layout.queue_of_order("a")).dead, count=1)
    assert await redis.hgetall(former.dead_seen) == {}
    assert await redis.hget(Keys.of(layout.queue_of_order("a")).dead_seen, "k") == entry_id + b" 8 1700000000000 5"
    assert kept == fields | {b"ingest_moved_from": queue_name.encode() + b" " + first}


async def test_a_dead_letter_that_a_failover_loses_in_its_new_partition_is_added_again(
    redis: Redis, queue_name: str, repartitioning: Repartitioning
) -> None:
    await dead_letter(redis, queue_name, "a")
    new = Keys.of((await repartitioning.begin(2)).queue_of_order("a"))
    await repartitioning.drain()
    assert await dead_orders(redis, queue_name) == ["a"]
    for key in (new.dead, new.dead_moved):
        await redis.delete(key)

    ended = [(await on(redis, queue_name).drain()).is_complete for _ in range(2)]

    assert ended == [False, True]
    assert await dead_orders(redis, queue_name) == []
    assert await dead_orders(redis, (await LayoutRecord(redis, queue_name).read()).queue_of_order("a")) == ["a"]


async def all_dead(redis: Redis, layout: Layout) -> list[tuple[str, str]]:
    """Each dead letter with its queue."""
    queues = (*layout.queues, *layout.others)
    return sorted([(order, queue) for queue in queues for order in await dead_orders(redis, queue)])


async def test_dead_letters_that_are_in_two_partitions_move_on_once_and_return(
    redis: Redis, queue_name: str, repartitioning: Repartitioning
) -> None:
    await dead_letter(redis, queue_name, *ORDERS)
    # A retry, so that no change is complete before.
    await redis.zadd(Keys.of(queue_name).retry, {"r": 2**42})
    for partitions in (8, 3, 8):
        # One pass adds the dead letters. This process ends before the pass that deletes them.
        await on(redis, queue_name).begin(partitions)
        await on(redis, queue_name).drain()
    await redis.delete(Keys.of(queue_name).retry)

    while not (ended := await repartitioning.drain()).is_complete:
        pass

    assert await all_dead(redis, ended.layout) == sorted((each, ended.layout.queue_of_order(each)) for each in ORDERS)
    assert [await redis.exists(Keys.of(queue).dead_moved) for queue in ended.layout.current] == [0] * 8


async def test_moves_for_an_earlier_layout_are_rejected(redis: Redis, queue_name: str) -> None:
    await dead_letter(redis, queue_name, *ORDERS)
    earlier = await on(redis, queue_name).begin(8)
    await on(redis, queue_name).begin(8)

    with pytest.raises(ChangedMeanwhile):
        await Draining(redis, GROUP).move_dead_letters(earlier, queue_name)

    assert await all_dead(redis, earlier) == sorted((each, queue_name) for each in ORDERS)


@pytest.mark.parametrize("handled", [JobKind.REPLAY, JobKind.DROP])
async def test_a_dead_letter_that_was_replayed_or_dropped_after_its_move_does_not_return(
    redis: Redis, queue_name: str, repartitioning: Repartitioning, handled: JobKind
) -> None:
    await dead_letter(redis, queue_name, "a")
    target = (await repartitioning.begin(2)).queue_of_order("a")
    await repartitioning.drain()
    dead_letters = PartitionDeadLetters(redis, target, group=GROUP)
    await dead_letters.change(handled, Selection(everything=True))

    ended = await repartitioning.drain()

    assert ended.is_complete
    assert await all_dead(redis, ended.layout) == []
    entries = await redis.xrange(Keys.of(target).express)
    assert [b"ingest_moved_from" in fields for _, fields in entries] == [False] * (handled is JobKind.REPLAY)


@pytest.mark.each_server
async def test_one_process_holds_a_change_until_it_releases_it(redis: Redis, queue_name: str) -> None:
    changes = [HeldChange("one", 8, 5), HeldChange("two", 3)]
    one, two = (ChangeHold(redis, queue_name, change) for change in changes)

    held = [await one.take(), await two.take(), await one.take()]
    await two.release()
    still = await two.take()
    await one.release()

    assert held == [None, changes[0], None]
    assert (still, await two.take()) == (changes[0], None)
    assert (await LayoutRecord(redis, queue_name).read()).generation == 0


async def test_a_process_that_was_cut_off_ends_when_another_one_holds_its_change(redis: Redis, queue_name: str) -> None:
    cut_off, heir = (ChangeHold(redis, queue_name, HeldChange(name, 8)) for name in ("cut-off", "heir"))
    await cut_off.take()
    await redis.hset(layout_key(queue_name), "held_until", 0)  # type: ignore[misc]
    await heir.take()

    with pytest.raises(ChangedMeanwhile, match="heir changes the partitions now"):
        await cut_off.renew()


class Interrupted(Redis):
    """A client that does something else before its first command of a kind."""

    command = ""
    happens: Callable[[], Awaitable[object]]

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        if args[0] == self.command:
            self.command = ""
            await self.happens()
        return await super().execute_command(*args, **options)  # type: ignore[no-untyped-call]


@pytest.mark.topologies("standalone")
async def test_a_dead_letter_that_is_replayed_in_a_former_partition_at_its_end_is_waited_for(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    await dead_letter(redis, queue_name, "a")
    async with Interrupted.from_url(redis_url) as client:
        # After the lanes were found empty, and before the dead letters move.
        client.happens = lambda: PartitionDeadLetters(redis, queue_name).change(
            JobKind.REPLAY, Selection(everything=True)
        )
        repartitioning = on(client, queue_name)
        await repartitioning.begin(6)

        client.command = "ZRANGE"
        progress = await repartitioning.drain()

    assert (progress.is_complete, progress.layout.former, progress.entries) == (False, (1,), 1)


async def test_the_mark_of_an_erased_order_moves_and_its_dead_letter_does_not(
    redis: Redis, queue_name: str, repartitioning: Repartitioning
) -> None:
    await PartitionEraser(redis, queue_name, GROUP).erase(["a"])
    await dead_letter(redis, queue_name, "a", "b")

    layout = await repartitioning.begin(3)
    for _ in range(2):
        await repartitioning.drain()

    assert [await dead_orders(redis, queue) for queue in layout.queues].count([]) == len(layout.queues) - 1
    assert await dead_orders(redis, layout.queue_of_order("b")) == ["b"]
    assert await redis.zscore(Keys.of(layout.queue_of_order("a")).erased, "a") is not None


async def test_orders_from_before_are_waited_for_in_a_partition_that_both_layouts_have(
    redis: Redis, redis_url: str, queue_name: str, repartitioning: Repartitioning
) -> None:
    await repartitioning.begin(2)
    await repartitioning.drain()
    first = partition_queue(queue_name, 0, 2)
    await redis.xadd(Keys.of(first).stream, {"order_id": "a"}, id="1-1")
    await dead_letter(redis, first, *(each for each in ORDERS if crc32(each.encode()) % 2 == 0))

    layout = await repartitioning.begin(3)
    before = await repartitioning.drain()
    assert await work_off(redis_url, first) == ["a"]
    await redis.xadd(Keys.of(first).stream, {"order_id": "new"}, id=f"{2**42}-0")
    ended = [await repartitioning.drain() for _ in range(2)][1]

    assert before.waiting_for == [first]
    assert ended.layout == Layout(queue_name, 3, (), layout.generation + 1)
    for queue in layout.current:
        assert {layout.queue_of_order(each) for each in await dead_orders(redis, queue)} <= {queue}


@pytest.mark.parametrize("where", ["main lane", "express lane", "retry set"])
async def test_an_order_from_before_is_waited_for_in_each_place(
    redis: Redis, queue_name: str, repartitioning: Repartitioning, where: str
) -> None:
    await repartitioning.begin(2)
    await repartitioning.drain()
    await repartitioning.begin(3)
    first = partition_queue(queue_name, 0, 2)
    keys = Keys.of(first)
    before, later = {"order_id": "a", "enqueued_at": "1000"}, f"{2**42}-0"
    # A repaired lane has given its entries new IDs, and a due retry has one as well.
    if where == "main lane":
        await redis.xadd(keys.stream, before, id=later)
    elif where == "express lane":
        await redis.xadd(keys.express, before, id=later)
    else:
        await redis.zadd(keys.retry, {"1-0": 2**42})
        await redis.zadd(keys.retry_announced, {"1-0": 1000})

    waiting = await repartitioning.drain()
    await redis.delete(keys.stream, keys.express, keys.retry, keys.retry_announced)
    done = [await repartitioning.drain() for _ in range(2)][1]

    assert waiting.waiting_for == [first]
    assert done.layout.former == ()


async def test_a_change_does_not_close_a_partition_that_a_later_one_has_opened(redis: Redis, queue_name: str) -> None:
    keys = Keys.of(queue_name)
    await load(redis, "open_partition")([keys.clock, keys.pushed], [0, 2, 3])

    for generation in (1, 2):
        await load(redis, "close_partition")([keys.clock, keys.pushed], [generation])
        assert await redis.hexists(keys.clock, "closed") == (generation == 2)


async def test_a_change_and_its_reversal_lose_no_order(
    redis: Redis, redis_url: str, queue_name: str, repartitioning: Repartitioning
) -> None:
    await redis.xadd(Keys.of(queue_name).stream, {"order_id": "a"})
    layout = await repartitioning.begin(6)
    await redis.xadd(Keys.of(layout.queue_of_order("b")).stream, {"order_id": "b"})

    back = await repartitioning.begin(1)

    assert back == Layout(queue_name, 1, (6,), 2)
    assert not await redis.hexists(Keys.of(queue_name).clock, "closed")
    assert all([await redis.hexists(Keys.of(queue).clock, "closed") for queue in layout.current])
    done = [order for queue in back.queues for order in await work_off(redis_url, queue)]
    assert sorted(done) == ["a", "b"]
    assert (await repartitioning.drain()).is_complete


async def test_each_step_may_be_repeated_by_another_process(redis: Redis, queue_name: str) -> None:
    for generation in range(1, 4):
        assert await on(redis, queue_name).begin(4) == Layout(queue_name, 4, (1,), generation)
    ended = [(await on(redis, queue_name).drain()).layout for _ in range(3)]
    again = await on(redis, queue_name).begin(4)

    assert [*ended, again] == [Layout(queue_name, 4, (), 4)] * 4


async def test_of_two_concurrent_changes_one_is_told(redis: Redis, queue_name: str) -> None:
    record = LayoutRecord(redis, queue_name)
    await record.read()

    class Slow(LayoutRecord):
        async def write(self, layout: Layout) -> Layout:
            await on(redis, queue_name).begin(3)
            return await super().write(layout)

    with pytest.raises(ChangedMeanwhile, match="to 3 at the same time"):
        await Repartitioning(redis, Slow(redis, queue_name), GROUP, 60.0).begin(6)


async def test_a_closed_partition_that_a_failover_has_opened_is_closed_again(
    redis: Redis, queue_name: str, repartitioning: Repartitioning
) -> None:
    await repartitioning.begin(3)
    await repartitioning.drain()
    await repartitioning.begin(1)
    former = partition_queue(queue_name, 2, 3)
    await redis.hdel(Keys.of(former).clock, "closed")

    assert [*(await repartitioning.drain()).waiting_for] == [former]
    assert (await repartitioning.drain()).is_complete


@pytest.mark.parametrize(("partitions", "written", "former"), [(2, "", 1), (2, ":4", 5), (1, ":0", 2)])
async def test_an_entry_of_a_program_that_did_not_follow_is_found_by_the_next_change(
    redis: Redis,
    redis_url: str,
    queue_name: str,
    repartitioning: Repartitioning,
    partitions: int,
    written: str,
    former: int,
) -> None:
    await repartitioning.begin(partitions)
    await repartitioning.drain()
    await redis.xadd(Keys.of(queue_name + written).stream, {"order_id": "late"})

    layout = await repartitioning.begin(partitions)

    assert layout.former == (former,)
    assert await work_off(redis_url, queue_name + written) == ["late"]
    assert (await repartitioning.drain()).is_complete


async def test_results_of_a_former_partition_expire_unless_it_returns(
    redis: Redis, queue_name: str, repartitioning: Repartitioning
) -> None:
    results = Keys.of(queue_name).results
    await redis.xadd(results, {"order_id": "a"})

    await repartitioning.begin(2)
    await repartitioning.drain()
    expiring = await redis.pttl(results)
    await repartitioning.begin(1)

    assert 0 < expiring <= 60_000
    assert await redis.pttl(results) == -1


async def test_a_document_is_later_than_those_of_the_former_partition(
    redis: Redis, queue_name: str, repartitioning: Repartitioning
) -> None:
    latest = str(2**52)
    await redis.set(Keys.of(queue_name).pushed, latest)

    layout = await repartitioning.begin(3)

    assert [(await redis.get(Keys.of(queue).pushed) or b"").decode() for queue in layout.current] == [latest] * 3


async def test_a_producer_is_rejected_by_a_partition_that_both_layouts_have(
    redis: Redis, repartitioning: Repartitioning
) -> None:
    await repartitioning.begin(2)
    layout = await repartitioning.begin(3)
    options = ProducerOptions(0, Durability.MEMORY, 1, 3_600.0, lambda _: None)
    former, current = (PartitionProducer(redis, layout.current[0], number, options) for number in (2, 3))

    with pytest.raises(QueueClosed):
        await former.submit(submissions("a", None, 500), express=False, waits=True)
    await current.submit(submissions("a", None, 500), express=False, waits=True)

    assert await redis.xlen(Keys.of(layout.current[0]).stream) == 1
    for producer in (former, current):
        await producer.close()
