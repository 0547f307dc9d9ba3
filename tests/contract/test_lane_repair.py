"""A lane whose entry IDs are used up, or far ahead of the clock, is reported and repaired, and no order is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest
from consumers import Consumer
from contract.heartbeating import connect
from redis.asyncio import Redis
from support import eventually

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.queue_state import FAR_AHEAD, Lane
from ingest.domain.errors import UserError
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.order_search import PartitionSearch
from ingest.queue.operate.partition_monitor import PartitionMonitor
from ingest.queue.partitions.lane_repair import LaneRepair
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

pytestmark = pytest.mark.topologies

LARGEST = "18446744073709551615-18446744073709551615"
FAR = "9999999999999-1"
LANES = (Lane.MAIN, Lane.EXPRESS)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with control_client(redis_url) as client:
        yield client


def stream_of(keys: Keys, lane: Lane) -> str:
    return keys.stream if lane is Lane.MAIN else keys.express


async def add(redis: Redis, stream: str, order_id: str, entry_id: str = "*", **options: int) -> None:
    await redis.xadd(stream, {"order_id": order_id}, id=entry_id, **options)  # type: ignore[arg-type]


async def repair(client: Redis, queue: str, group: str = "ingest") -> int:
    repair, moved = LaneRepair(client, queue, group), 0
    for lane in LANES:
        while not (step := await repair.step(lane)).is_complete:
            moved += step.moved
        moved += step.moved
    return moved


async def read_all(consumer: Consumer, orders: Sequence[str]) -> None:
    """Read and finish entries until each of these orders was among them."""
    missing = set(orders)
    async with asyncio.timeout(20):
        while missing:
            deliveries = [*await consumer.read(100, 0.1), *(await consumer.claim_abandoned(100)).released]
            await consumer.ack([delivery.entry for delivery in deliveries])
            missing -= {delivery.order_id or "" for delivery in deliveries}


@pytest.mark.parametrize("entry_id", [LARGEST, FAR])
@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("left", ["alone", "with others", "trimmed", "finished"])
async def test_entry_ids_that_are_too_far_ahead_are_reported(
    client: Redis, redis: Redis, keys: Keys, queue_name: str, one: Consumer, lane: Lane, entry_id: str, left: str
) -> None:
    stream = stream_of(keys, lane)
    if left == "with others":
        await add(redis, stream, "before")
    await add(redis, stream, "last", entry_id, **({"maxlen": 0, "approximate": 0} if left == "trimmed" else {}))
    if left == "finished":
        await read_all(one, ["last"])

    state = await PartitionMonitor(client, queue_name, "ingest").state()

    assert state.lanes[lane].ids_ahead > FAR_AHEAD
    assert {each: part.is_exhausted for each, part in state.lanes.items()} == {
        each: each is lane and entry_id == LARGEST for each in LANES
    }
    [problem] = state.id_problems
    assert f"the {lane} lane" in problem


async def test_a_clock_that_was_set_back_by_hours_is_no_problem(
    client: Redis, redis: Redis, keys: Keys, queue_name: str
) -> None:
    seconds, _ = await redis.time()
    await add(redis, keys.stream, "a", f"{(int(seconds) + 12 * 3_600) * 1_000}-0")

    state = await PartitionMonitor(client, queue_name, "ingest").state()

    assert state.id_problems == []
    assert await repair(client, queue_name) == 0


@pytest.mark.parametrize("lane", LANES)
async def test_producers_learn_that_the_ids_are_used_up(
    client: Redis, redis: Redis, keys: Keys, queue_name: str, one: Consumer, lane: Lane
) -> None:
    await add(redis, stream_of(keys, lane), "last", LARGEST)
    await read_all(one, ["last"])

    for options in ({}, {"coalesce": 60.0}):
        with pytest.raises(UserError, match="ingest partitions repair"):
            await Producer(client, queue_name).try_announce(
                [Announcement("a")], express=lane is Lane.EXPRESS, **options
            )


@pytest.mark.each_server
@pytest.mark.parametrize("entry_id", [LARGEST, FAR])
async def test_maintenance_and_searches_work_while_the_largest_id_is_pending(
    client: Redis, redis: Redis, keys: Keys, queue_name: str, one: Consumer, entry_id: str
) -> None:
    for stream in (keys.stream, keys.express):
        await add(redis, stream, "before")
        await add(redis, stream, stream, entry_id)
    await one.read(100, 1.0)

    swept = await one.sweep(3_600)
    found = await PartitionSearch(client, queue_name, "ingest").find([keys.stream, keys.express])

    assert not swept.restored
    assert {order: len(entries) for order, entries in found.entries.items()} == {keys.stream: 1, keys.express: 1}


@pytest.mark.parametrize("entry_id", [LARGEST, FAR])
@pytest.mark.parametrize("lane", LANES)
async def test_a_repair_keeps_every_entry_and_its_fields(
    client: Redis, redis: Redis, keys: Keys, queue_name: str, one: Consumer, lane: Lane, entry_id: str
) -> None:
    stream = stream_of(keys, lane)
    await add(redis, stream, "held")
    await one.read(1, 1.0)
    await redis.xadd(stream, {"order_id": "waits", "attempt": "3", "unknown": "kept"})
    before = [(await redis.xrange(stream))[0][0].split(b"-")[0]]
    await redis.xadd(stream, {"note": "no order"})
    await add(redis, stream, "last", entry_id)

    moved = await repair(client, queue_name)

    assert moved == 4
    entries = [fields for _, fields in await redis.xrange(stream)]
    assert [fields.get(b"order_id") for fields in entries] == [b"held", b"waits", None, b"last"]
    assert entries[1] | {b"enqueued_at": b""} == {
        b"order_id": b"waits",
        b"attempt": b"3",
        b"unknown": b"kept",
        b"enqueued_at": b"",
    }
    assert entries[0][b"enqueued_at"] == before[0], "an order waits since it was enqueued"
    state = await PartitionMonitor(client, queue_name, "ingest").state()
    assert state.id_problems == []
    assert state.lanes[lane].depth == 4
    [group] = await redis.xinfo_groups(stream)
    assert (group["name"], group["pending"], group["lag"]) == (b"ingest", 0, 4)
    await Producer(client, queue_name).enqueue(["next"], express=lane is Lane.EXPRESS)
    await read_all(one, ["held", "waits", "last", "next"])


async def test_a_repair_in_steps_continues_after_a_crash_and_beside_another(
    client: Redis, redis: Redis, keys: Keys, queue_name: str, one: Consumer
) -> None:
    orders = [f"order-{number}" for number in range(5_000)]
    await Producer(client, queue_name).enqueue(orders)
    await add(redis, keys.stream, "last", LARGEST)
    await LaneRepair(client, queue_name, "ingest").step(Lane.MAIN)
    assert (await PartitionMonitor(client, queue_name, "ingest").state()).lanes[Lane.MAIN].is_exhausted

    await asyncio.gather(repair(client, queue_name), repair(client, queue_name))

    waiting = {fields[b"order_id"].decode() for _, fields in await redis.xrange(keys.stream)}
    assert waiting == {*orders, "last"}
    assert await redis.xlen(f"{keys.stream}-repair") == 0
    await read_all(one, [*orders, "last"])


async def test_entries_of_an_interrupted_repair_return_after_the_lane_was_deleted_by_hand(
    client: Redis, redis: Redis, keys: Keys, queue_name: str
) -> None:
    orders = [f"order-{number}" for number in range(2_500)]
    await Producer(client, queue_name).enqueue(orders[:2_000])
    await add(redis, keys.stream, "last", LARGEST)
    await LaneRepair(client, queue_name, "ingest").step(Lane.MAIN)
    await redis.delete(keys.stream)
    await Producer(client, queue_name).enqueue(orders[2_000:])

    await repair(client, queue_name)

    waiting = {fields[b"order_id"].decode() for _, fields in await redis.xrange(keys.stream)}
    assert waiting == {*orders[:1_000], *orders[2_000:]}


async def test_workers_and_producers_continue_during_a_repair(
    client: Redis, redis: Redis, redis_url: str, keys: Keys, queue_name: str, one: Consumer
) -> None:
    del one  # it has created the group
    stored: set[str] = set()
    accepted: list[str] = []
    stop = asyncio.Event()

    async def work(name: str) -> None:
        async with connect(redis_url, queue_name, name) as consumer:
            while not stop.is_set():
                deliveries = await consumer.read(20, 0.5)
                stored.update(delivery.order_id or "" for delivery in deliveries)
                await consumer.ack([delivery.entry for delivery in deliveries])

    async def produce() -> None:
        producer = Producer(client, queue_name)
        for number in range(10_000):
            if stop.is_set():
                return
            try:
                await producer.enqueue([f"order-{number}"])
            except UserError:
                await asyncio.sleep(0.001)
                continue
            accepted.append(f"order-{number}")

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work("two")), group.create_task(work("three")), group.create_task(produce())]
        for entry_id in (FAR, LARGEST):
            await eventually(lambda: len(stored) > 100)
            await add(redis, keys.stream, f"last {entry_id}", entry_id)
            accepted.append(f"last {entry_id}")
            await repair(client, queue_name)
            count = len(accepted)
            await eventually(lambda count=count: len(accepted) > count + 50)
        await eventually(lambda: stored >= {*accepted})
        stop.set()
    assert all(task.done() for task in tasks)


async def test_each_group_receives_the_entries_of_a_repaired_lane(
    client: Redis, redis: Redis, redis_url: str, keys: Keys, queue_name: str, one: Consumer
) -> None:
    await redis.xgroup_create(keys.stream, "other", "0")
    await Producer(client, queue_name).enqueue(["a", "b"])
    await read_all(one, ["a", "b"])
    await add(redis, keys.stream, "last", LARGEST)

    await repair(client, queue_name)

    groups = {group["name"]: group["lag"] for group in await redis.xinfo_groups(keys.stream)}
    assert groups == {b"ingest": 3, b"other": 3}
    assert await redis.exists(Keys.of(queue_name, "ingest").settled) == 0
    async with Consumer.open(redis_url, queue_name, "other", "two", 1.0) as other:
        await read_all(other, ["a", "b", "last"])
