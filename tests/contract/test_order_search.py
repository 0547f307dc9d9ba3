"""The search for orders in a queue on real servers finds an order in any place, and reports unsearched parts."""

from collections.abc import AsyncIterator

import msgspec
import pytest
from consumers import Consumer, server_stats
from contract.heartbeating import GROUP, NOW
from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import DeadReason, Delivery, RetryReason
from ingest.domain.deliveries.queue_state import Lane
from ingest.domain.orders.order_state import DeadEntry, InFlightEntry, IngestionState, QueuedEntry, RetryEntry
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.order_search import PartitionSearch, Searched
from ingest.queue.produce.producer import Producer

pytestmark = pytest.mark.topologies

IDS = [f"order-{number}" for number in range(2_000)]


@pytest.fixture
def search(redis: Redis, queue_name: str) -> PartitionSearch:
    return PartitionSearch(redis, queue_name, GROUP)


@pytest.fixture
async def producer(redis_url: str, queue_name: str) -> AsyncIterator[Producer]:
    async with Producer.connect(redis_url, queue_name) as producer:
        yield producer


def states(found: Searched) -> dict[str, list[IngestionState]]:
    return {order_id: [entry.state for entry in entries] for order_id, entries in found.entries.items()}


async def take(consumer: Consumer, count: int) -> list[Delivery]:
    taken: list[Delivery] = []
    while len(taken) < count:
        taken += await consumer.read(count - len(taken), NOW)
    return taken


async def test_in_a_queue_that_does_not_exist_nothing_is_found(search: PartitionSearch) -> None:
    assert await search.find(["a"]) == Searched({}, is_complete=True)


@pytest.mark.each_server
async def test_an_order_is_found_wherever_it_is(search: PartitionSearch, one: Consumer, producer: Producer) -> None:
    await producer.enqueue(["dead", "retried", "held", "released", "done"])
    dead, retried, held, released, done = await take(one, 5)
    await producer.enqueue(["waiting"])
    await producer.enqueue(["urgent"], express=True)
    await one.dead_letter(dead, DeadReason.REJECTED, "HTTP 422")
    await one.reschedule(retried, 3_600.0, 4, RetryReason.TIMEOUT, "no answer within 5 s")
    await one.release([released])
    await one.ack([done.entry])

    wanted = ["dead", "retried", "held", "released", "done", "waiting", "urgent", "other"]
    found = await search.find(wanted)

    assert states(found) == {
        "dead": [IngestionState.DEAD],
        "retried": [IngestionState.RETRYING],
        "held": [IngestionState.IN_FLIGHT],
        "released": [IngestionState.QUEUED],
        "waiting": [IngestionState.QUEUED],
        "urgent": [IngestionState.QUEUED],
    }
    [letter], [retry], [flying], [urgent] = (found.entries[name] for name in ("dead", "retried", "held", "urgent"))
    assert isinstance(letter, DeadEntry)
    assert (letter.reason, letter.error, letter.attempts) == ("rejected", "HTTP 422", 1)
    assert isinstance(retry, RetryEntry)
    assert (retry.attempt, retry.reason, retry.error) == (4, "timeout", "no answer within 5 s")
    assert retry.announced_at is not None
    assert 3_500 < (retry.next_try_at - retry.announced_at).total_seconds() < 3_700
    assert isinstance(flying, InFlightEntry)
    assert (flying.worker, flying.deliveries, flying.lane, flying.entry_id) == ("one", 1, Lane.MAIN, held.entry.id)
    assert flying.announced_at <= flying.renewed_at
    assert isinstance(urgent, QueuedEntry)
    assert urgent.lane is Lane.EXPRESS


async def test_an_order_that_is_in_several_places_is_found_in_all(
    search: PartitionSearch, one: Consumer, producer: Producer
) -> None:
    await producer.enqueue(["a"] * 4)
    dead, retried, _ = await take(one, 3)
    await one.dead_letter(dead, DeadReason.REJECTED, "HTTP 422")
    await one.reschedule(retried, 3_600.0, 2)

    found = await search.find(["a"])

    assert sorted(states(found)["a"]) == ["dead", "in_flight", "queued", "retrying"]


async def test_of_other_groups_nothing_is_found(
    search: PartitionSearch, one: Consumer, producer: Producer, redis: Redis, keys: Keys
) -> None:
    for lane in (keys.stream, keys.express):
        await redis.xgroup_create(lane, "audit", id="0", mkstream=True)
    await producer.enqueue(["finished"])
    await redis.xadd(keys.stream, {"order_id": "theirs", "ingest_group": "audit"})
    [delivery, *_] = await take(one, 1)
    await one.ack([delivery.entry])

    assert await search.find(["finished", "theirs"]) == Searched({}, is_complete=True)
    audit = await PartitionSearch(redis, keys.stream[len("ingest:{") : -len("}:stream")], "audit").find(
        ["finished", "theirs"]
    )
    assert states(audit) == {"finished": [IngestionState.QUEUED], "theirs": [IngestionState.QUEUED]}


async def test_in_a_long_queue_every_order_is_found(search: PartitionSearch, one: Consumer, producer: Producer) -> None:
    await producer.enqueue(IDS)
    for delivery in await take(one, 700):
        await one.reschedule(delivery, 3_600.0, 2)
    for delivery in await take(one, 700):
        await one.dead_letter(delivery, DeadReason.REJECTED, "HTTP 422")
    seen: list[int] = []

    found = [await search.find(IDS[start : start + 1_000], on_progress=seen.append) for start in (0, 1_000)]

    both = states(found[0]) | states(found[1])
    assert set(both) == set(IDS)
    assert all(len(each) == 1 for each in both.values())
    assert len(seen) > 2
    assert seen[-1] >= len(IDS)


async def test_what_is_too_long_to_be_searched_is_told_and_the_rest_is_searched(
    search: PartitionSearch, one: Consumer, producer: Producer
) -> None:
    await producer.enqueue(["dead", *IDS[:50]])
    [delivery] = await take(one, 1)
    await one.dead_letter(delivery, DeadReason.REJECTED, "HTTP 422")

    found = await search.find(["dead", IDS[0]], limit=49)

    assert (states(found), found.is_complete) == ({"dead": [IngestionState.DEAD]}, False)
    assert (await search.find([IDS[0]], limit=50)).is_complete


async def test_the_sizes_of_a_queue_are_those_of_its_parts(
    search: PartitionSearch, one: Consumer, producer: Producer
) -> None:
    await producer.enqueue(["dead", "retried", *IDS[:50]])
    dead, retried = await take(one, 2)
    await one.dead_letter(dead, DeadReason.REJECTED, "HTTP 422")
    await one.reschedule(retried, 3_600.0, 2)
    await producer.enqueue(IDS[:3], express=True)

    assert await search.sizes() == [50, 3, 1, 1]


async def test_of_each_part_no_more_entries_are_searched_than_wanted(
    search: PartitionSearch, one: Consumer, producer: Producer
) -> None:
    await producer.enqueue(IDS[:300])
    for delivery in await take(one, 150):
        await one.dead_letter(delivery, DeadReason.REJECTED, "HTTP 422")
    await producer.enqueue(["urgent"], express=True)
    seen: list[int] = []

    found = await search.find([*IDS[:300], "urgent"], most=30, on_progress=seen.append)

    assert not found.is_complete
    assert {IDS[0], IDS[150], "urgent"} <= found.entries.keys()
    assert seen[-1] < 300
    all_of_it = await search.find(IDS[:300], most=150)
    assert (len(all_of_it.entries), all_of_it.is_complete) == (300, True)


async def test_large_documents_are_neither_collected_nor_handed_over(
    search: PartitionSearch, redis: Redis, keys: Keys
) -> None:
    document = b"1" * 100_000
    for order_id in IDS[:30]:
        await redis.xadd(keys.stream, {"order_id": order_id, "document": document})
        await redis.xadd(keys.dead, {"order_id": order_id, "document": document, "reason": "rejected"})
        packed = msgspec.msgpack.encode(["order_id", order_id, "document", document.decode()])
        await redis.hset(keys.retry_entries, order_id, packed)  # type: ignore[arg-type]  # bytes are what Redis keeps
        await redis.zadd(keys.retry, {order_id: 1})
    before = (await server_stats(redis, keys, "stats"))["total_net_output_bytes"]
    calls: list[int] = []

    found = await search.find(IDS[:30], on_progress=calls.append)

    assert all(len(entries) == 3 for entries in found.entries.values())
    assert len(found.entries) == 30
    assert (await server_stats(redis, keys, "stats"))["total_net_output_bytes"] - before < 100_000
    assert len(calls) > 5


async def test_what_cannot_be_read_is_passed_over(search: PartitionSearch, redis: Redis, keys: Keys) -> None:
    await redis.hset(keys.retry_entries, "1-0", "no entry")
    await redis.hset(keys.retry_entries, "2-0", msgspec.msgpack.encode({"order_id": "a"}))  # type: ignore[arg-type]
    await redis.zadd(keys.retry, {"1-0": 1, "2-0": 1})
    for fields in ({"order": "a"}, {"order_id": b"\xff"}, {"order_id": "a", "enqueued_at": "soon", "attempt": "x" * 9}):
        await redis.xadd(keys.dead, fields)  # type: ignore[arg-type]

    [letter] = (await search.find(["a"])).entries["a"]

    assert isinstance(letter, DeadEntry)
    assert (letter.attempts, letter.reason) == (None, "")
