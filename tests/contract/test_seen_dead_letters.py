"""An order that is dead already with the same reason and content adds to the count of its dead letter, and nothing is lost."""

from collections.abc import AsyncIterator

import pytest
from consumers import Consumer
from redis.asyncio import Redis

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.selection import Selection
from ingest.domain.operating.jobs import JobKind
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.erasing import PartitionEraser
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.job_steps import JobSteps
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client

pytestmark = pytest.mark.topologies

EVERYTHING = Selection(everything=True)


@pytest.fixture
async def client(redis_url: str) -> AsyncIterator[Redis]:
    async with control_client(redis_url) as client:
        yield client


async def die(
    client: Redis,
    queue: str,
    consumer: Consumer,
    *orders: str | Announcement,
    error: str = "HTTP 404",
    express: bool = False,
) -> None:
    """Dead-letter these orders, one after the other."""
    for order in orders:
        await Producer(client, queue).enqueue([order], express=express)
        [delivery] = await consumer.read(1, 1.0)
        assert await consumer.dead_letter(delivery, DeadReason.NOT_FOUND, error)


async def letters(client: Redis, queue: str) -> list[DeadLetterEntry]:
    """The dead letters, oldest first, as lists and as exports show them, which is the same."""
    dead = PartitionDeadLetters(client, queue)
    whole = [entry async for page in dead.oldest_first(EVERYTHING) for entry in page.entries]
    listed, _ = await dead.summaries(EVERYTHING, None, 100)
    looked_up = [await dead.get(entry.entry_id) for entry in whole]
    by_id = Selection(frozenset(entry.entry_id for entry in whole) or frozenset({"none"}))
    chosen = [entry async for page in dead.newest_summaries(by_id) for entry in page.entries]
    counts = [(entry.entry_id, entry.seen, entry.last_seen_at) for entry in whole]
    assert looked_up == whole
    assert [(entry.entry_id, entry.seen, entry.last_seen_at) for entry in reversed(listed)] == counts
    assert sorted((entry.entry_id, entry.seen, entry.last_seen_at) for entry in chosen) == sorted(counts)
    return whole


async def test_an_order_that_dies_again_is_counted(
    client: Redis, redis: Redis, keys: Keys, queue_name: str, one: Consumer
) -> None:
    await die(client, queue_name, one, "a")
    [before] = await letters(client, queue_name)
    await die(client, queue_name, one, Announcement("a", origin="poll"), "b", express=True)
    await die(client, queue_name, one, "a")

    [after, other] = await letters(client, queue_name)

    assert (before.seen, before.last_seen_at) == (1, None)
    assert (after.entry_id, after.dead_at, after.fields) == (before.entry_id, before.dead_at, before.fields)
    assert after.seen == 3
    assert after.last_seen_at is not None
    assert after.last_seen_at >= before.dead_at
    assert (other.order_id, other.seen) == ("b", 1)
    assert [await redis.xlen(lane.stream) for lane in keys.lanes] == [0, 0]


async def test_another_reason_error_or_content_is_another_letter(client: Redis, queue_name: str, one: Consumer) -> None:
    await die(
        client, queue_name, one, "a", Announcement("a", document=b'{"n": 1}'), Announcement("a", document=b'{"n": 2}')
    )
    await die(client, queue_name, one, "a", error="HTTP 410")
    await Producer(client, queue_name).enqueue(["a"])
    [delivery] = await one.read(1, 1.0)
    await one.dead_letter(delivery, DeadReason.REJECTED, "HTTP 404")
    await die(client, queue_name, one, "a", error="HTTP 404")
    await die(client, queue_name, one, "a", error="no answer within 9.5 s")
    await die(client, queue_name, one, "a", error="no answer within 10 s")

    found = [(entry.reason, entry.error, entry.seen) for entry in await letters(client, queue_name)]

    assert found == [
        ("not_found", "HTTP 404", 2),
        ("not_found", "HTTP 404", 1),
        ("not_found", "HTTP 404", 1),
        ("not_found", "HTTP 410", 1),
        ("rejected", "HTTP 404", 1),
        ("not_found", "no answer within 9.5 s", 2),
    ]


@pytest.mark.parametrize("way", ["replay", "replay by a job", "drop", "drop by a job", "erase", "by hand"])
async def test_an_order_whose_letter_is_gone_gets_a_new_one(
    client: Redis, redis: Redis, keys: Keys, queue_name: str, one: Consumer, way: str
) -> None:
    await die(client, queue_name, one, "a", "a")
    [letter] = await letters(client, queue_name)
    dead, steps = PartitionDeadLetters(client, queue_name), JobSteps(client, queue_name, 1)
    match way:
        case "replay":
            await dead.change(JobKind.REPLAY, EVERYTHING)
        case "replay by a job":
            await steps.change(JobKind.REPLAY, [letter.entry_id], letter.entry_id)
        case "drop":
            await dead.change(JobKind.DROP, EVERYTHING)
        case "drop by a job":
            await steps.change(JobKind.DROP, [letter.entry_id], letter.entry_id)
        case "erase":
            await PartitionEraser(client, queue_name, "ingest").erase(["a"])
            await redis.zrem(keys.erased, "a")
        case _:
            await redis.xdel(keys.dead, letter.entry_id)
    left = await redis.hlen(keys.dead_seen)
    if way.startswith("replay"):
        [delivery] = await one.read(1, 1.0)
        await one.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")
    else:
        await die(client, queue_name, one, "a")

    [again] = await letters(client, queue_name)

    assert left == (1 if way == "by hand" else 0), "the hash contains letters only"
    assert again.entry_id != letter.entry_id
    assert (again.order_id, again.seen, again.replays) == ("a", 1, 1 if way.startswith("replay") else 0)


async def test_a_document_that_was_accepted_again_is_replayed_as_the_newest(
    client: Redis, queue_name: str, one: Consumer
) -> None:
    document = Announcement("a", document=b'{"n": 1}')
    await die(client, queue_name, one, document)
    await Producer(client, queue_name).enqueue([Announcement("a", document=b'{"n": 2}')])
    [newer] = await one.read(1, 1.0)
    await one.ack([newer.entry])
    await die(client, queue_name, one, document)
    [letter] = await letters(client, queue_name)

    await PartitionDeadLetters(client, queue_name).change(JobKind.REPLAY, EVERYTHING)

    [replayed] = await one.read(1, 1.0)
    assert letter.seen == 2
    assert (replayed.document, replayed.pushed_at() > newer.pushed_at()) == (b'{"n": 1}', True)


async def test_an_entry_of_a_program_with_the_name_of_our_fields_is_carried_as_its_content(
    client: Redis, redis: Redis, keys: Keys, queue_name: str, one: Consumer
) -> None:
    for value in ("1", "1", "2"):
        await redis.xadd(keys.stream, {"order_id": "a", "seen": value, "ingest_seen_key": "forged", "dead_at": "1"})
        [delivery] = await one.read(1, 1.0)
        await one.dead_letter(delivery, DeadReason.NOT_FOUND, "HTTP 404")

    found = [(entry.fields[b"seen"], entry.seen) for entry in await letters(client, queue_name)]

    assert found == [(b"1", 2), (b"2", 1)]
