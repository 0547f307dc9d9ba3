"""The producer of a queue with several partitions, on a real server: each order reaches its partition once, also while their number changes."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest
from cluster_set import ClusterSet
from listener import listening
from redis.asyncio import Redis
from servers.kinds import Kind

from ingest.domain.deliveries.accepted import Accepted, Durability
from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import QueueUnavailable
from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.partitions import Layout
from ingest.lab.servers import ValkeyServer
from ingest.operations.backends import Backends
from ingest.operations.backfill.lane import open_main_lane
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.queue.produce.idempotent_calls import Begun, Done, IdempotentCalls, Running
from ingest.queue.produce.producer import BATCH, Producer
from ingest.queue.produce.producer_errors import BacklogFull, IdempotencyKeyReused
from ingest.queue.redis.connection import control_client

pytestmark = pytest.mark.topologies
IDS = [f"order-{number}" for number in range(6 * BATCH)]


@pytest.fixture
def six(queue_name: str) -> Layout:
    return Layout(queue_name, 6, (), 1)


@pytest.fixture
async def producer(redis_url: str, queue_name: str) -> AsyncIterator[Producer]:
    async with Producer.connect(redis_url, queue_name, partitions=6) as producer:
        yield producer


async def queued(redis: Redis, queue: str) -> list[str]:
    return [fields[b"order_id"].decode() for _, fields in await redis.xrange(Keys.of(queue).stream)]


async def queued_in(redis: Redis, queues: Sequence[str]) -> dict[str, list[str]]:
    found = {queue: await queued(redis, queue) for queue in queues}
    return {queue: ids for queue, ids in found.items() if ids}


def divided(layout: Layout, ids: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for order_id in ids:
        found.setdefault(layout.queue_of_order(order_id), []).append(order_id)
    return found


async def change(redis: Redis, former: Layout, partitions: int) -> Layout:
    """Record another number of partitions, and close the former ones."""
    to = Layout(former.queue, partitions, (former.partitions, *former.former), former.generation + 1)
    record = LayoutRecord(redis, former.queue)
    await record.open_queues(to)
    assert await record.write(to) == to
    for queue in set(former.current) - set(to.current):
        await redis.hset(Keys.of(queue).clock, "closed", to.generation)  # type: ignore[misc]
    return to


async def test_each_order_is_in_its_partition_in_the_order_of_the_call(
    redis: Redis, producer: Producer, six: Layout
) -> None:
    assert await producer.enqueue(IDS) == len(IDS)
    assert await producer.try_announce("urgent", express=True) == Accepted(1, 0)

    assert await queued_in(redis, six.queues) == divided(six, IDS)
    assert await redis.xlen(Keys.of(six.queue_of_order("urgent")).express) == 1


async def test_orders_follow_a_change_of_partitions_and_none_is_lost_or_queued_twice(
    redis: Redis, redis_url: str, queue_name: str
) -> None:
    async with Producer.connect(redis_url, queue_name) as producer:
        await producer.enqueue("before")
        four = await change(redis, Layout(queue_name), 4)
        running = [asyncio.create_task(producer.enqueue(order_id)) for order_id in IDS[:300]]
        counts = [await producer.enqueue(IDS), await producer.try_enqueue(IDS[:10], idempotency_key="key")]
        await asyncio.gather(*running)
        assert counts == [len(IDS), 10]
        two = await change(redis, four, 2)
        assert await producer.try_announce([Announcement("document", document=b"{}")]) == Accepted(1, 0)

    found = await queued_in(redis, two.queues)
    assert found.pop(queue_name) == ["before"]
    assert found[two.queue_of_order("document")][-1] == "document"
    every = [order_id for ids in found.values() for order_id in ids]
    assert sorted(every) == sorted([*IDS, *IDS[:300], *IDS[:10], "document"])


async def test_a_batch_that_was_added_before_its_partition_was_closed_is_confirmed(
    redis: Redis, producer: Producer, six: Layout
) -> None:
    assert await producer.try_announce(IDS[:9], idempotency_key="key") == Accepted(9, 0)
    for queue in six.current:
        await redis.hset(Keys.of(queue).clock, "closed", 2)  # type: ignore[misc]

    assert await producer.try_announce(IDS[:9], idempotency_key="key") == Accepted(9, 0)
    assert await queued_in(redis, six.queues) == divided(six, IDS[:9])


async def test_a_closed_partition_without_a_later_layout_is_waited_for(
    redis: Redis, producer: Producer, six: Layout
) -> None:
    await producer.enqueue("a")
    queue = six.queue_of_order("a")
    await redis.hset(Keys.of(queue).clock, "closed", 2)  # type: ignore[misc]

    with pytest.raises(QueueUnavailable, match="closed"):
        await producer.try_enqueue("a")
    waiting = asyncio.create_task(producer.enqueue("a"))
    await asyncio.sleep(0)
    three = await change(redis, six, 3)
    await waiting

    assert await queued(redis, three.queue_of_order("a")) == ["a"] * (2 if three.queue_of_order("a") == queue else 1)


async def test_a_repeated_call_over_several_partitions_adds_nothing_and_other_orders_are_refused(
    redis: Redis, producer: Producer, six: Layout
) -> None:
    mine = [order_id for order_id in IDS[:1_000] if six.queue_of_order(order_id) != six.current[0]]
    first = await producer.try_announce(mine, idempotency_key="key")
    again = await producer.try_announce(mine, idempotency_key="key")
    counted = await producer.try_announce(mine, idempotency_key="key", count_repeats=True)
    with pytest.raises(IdempotencyKeyReused):
        # This includes the partition that has not seen the key.
        await producer.try_announce(IDS[1_000:2_000], idempotency_key="key")

    assert (first, again, counted) == (Accepted(len(mine), 0), Accepted(len(mine), 0), Accepted(0, len(mine)))
    assert await queued_in(redis, six.queues) == divided(six, mine)


async def test_a_repeated_call_completes_the_one_that_only_some_partitions_have_accepted(
    redis: Redis, redis_url: str, queue_name: str, six: Layout
) -> None:
    async with Producer.connect(redis_url, queue_name, partitions=6, backlog_limit=600) as producer:
        full = six.queue_of_order(IDS[0])
        await redis.xadd(Keys.of(full).stream, {"order_id": "x"})
        others = [order_id for order_id in IDS if six.queue_of_order(order_id) == full]
        await producer.enqueue(others[1:99])
        with pytest.raises(BacklogFull, match=rf"of {full} is at its limit of 100 orders"):
            await producer.try_announce([*IDS[:8], *others[:2]], idempotency_key="key")
        await redis.delete(Keys.of(full).stream)

        assert await producer.try_announce([*IDS[:8], *others[:2]], idempotency_key="key") == Accepted(10, 0)

    assert await queued_in(redis, six.queues) == divided(six, [*IDS[:8], *others[:2]])


async def test_a_key_does_not_hide_orders_that_were_divided_differently_before_a_change(
    redis: Redis, producer: Producer, six: Layout
) -> None:
    await producer.try_announce(IDS[:50], idempotency_key="key")
    four = await change(redis, six, 4)
    async with asyncio.timeout(5):
        while (await LayoutRecord(redis, six.queue).read()) != four:
            pass

    for queue in six.current:
        await redis.delete(Keys.of(queue).stream)
    closed = six.queue_of_order(next(each for each in IDS if six.queue_of_order(each) not in four.current))
    moved = next(each for each in IDS if six.queue_of_order(each) == closed)
    # It makes the producer read the record again.
    await producer.try_announce(moved)

    assert await producer.try_announce(IDS[:50], idempotency_key="key") == Accepted(50, 0)
    found = await queued_in(redis, four.queues)
    assert set(IDS[:50]) <= {order_id for ids in found.values() for order_id in ids}


async def test_orders_that_still_wait_are_coalesced_in_each_partition(
    redis: Redis, producer: Producer, six: Layout
) -> None:
    assert await producer.try_announce(IDS[:50], coalesce=60) == Accepted(50, 0)
    assert await producer.try_announce(IDS[:80], coalesce=60) == Accepted(30, 50)
    assert await queued_in(redis, six.queues) == divided(six, IDS[:80])


async def test_calls_are_remembered_in_the_partition_of_their_name(redis: Redis, six: Layout) -> None:
    calls, others = (IdempotentCalls(redis, six.queue, partitions=6) for _ in range(2))
    call = await calls.begin("call")

    assert isinstance(call, Begun)
    assert isinstance(await others.begin("call"), Running)
    await calls.end(call, "print", (2, 1))

    assert await others.begin("call") == Done("print", (2, 1))
    assert await redis.exists(f"{Keys.of(six.queue_of_order('call')).records}call:call")


async def test_the_first_calls_share_one_reading_of_the_record_and_later_ones_need_none(
    own_redis: Redis, own_valkey: ValkeyServer, queue_name: str
) -> None:
    async def reads() -> int:
        return int((await own_redis.info("commandstats"))["cmdstat_hmget"]["calls"])

    async with Producer.connect(own_valkey.url, queue_name) as producer:
        await asyncio.gather(*(producer.enqueue(order_id) for order_id in IDS[:100]))
        first = await reads()
        await producer.enqueue("another")

        # The script itself looks whether the queue is closed.
        assert (first, await reads()) == (2, 3)


async def test_orders_of_all_partitions_are_confirmed_by_the_replicas_of_their_nodes(
    kind: Kind, tmp_path: Path, six: Layout, queue_name: str
) -> None:
    with ClusterSet.open(kind, tmp_path) as cluster:
        await cluster.become_ready()
        durability = Durability.REPLICATED
        async with Producer.connect(cluster.url(), queue_name, partitions=6, durability=durability) as producer:
            await producer.check_durability()
            await producer.enqueue(IDS[:300])
            await asyncio.gather(*(producer.enqueue(order_id) for order_id in IDS[300:600]))
        async with cluster.client() as client:
            lengths = [await client.xlen(Keys.of(queue).stream) for queue in six.current]

    assert lengths == [len(ids) for _, ids in sorted(divided(six, IDS[:600]).items())]


async def test_a_backfill_counts_the_entries_of_all_partitions(redis: Redis, redis_url: str, six: Layout) -> None:
    servers = Backends(redis_url, "", six.queue, partitions=6)
    async with open_main_lane(servers, "backfill") as lane:
        await lane.enqueue([ListedOrder(order_id) for order_id in IDS[:50]])

        assert await lane.occupied() == 50
    assert await queued_in(redis, six.queues) == divided(six, IDS[:50])


async def test_calls_that_wait_for_the_first_reading_end_when_the_producer_is_closed(queue_name: str) -> None:
    is_asked = asyncio.Event()

    async def silent(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read(1)
        is_asked.set()
        await reader.read()

    async with listening(silent) as port, control_client(f"redis://127.0.0.1:{port}/0") as client:
        producer = Producer(client, queue_name)
        calls = [asyncio.create_task(call("a")) for call in (producer.enqueue, producer.try_enqueue)]
        await is_asked.wait()
        await producer.close()

        for call in [*calls, asyncio.create_task(producer.enqueue("later"))]:
            with pytest.raises(QueueUnavailable, match="the producer is closed"):
                await call
