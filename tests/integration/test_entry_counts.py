"""The counts of selected dead letters and retries, which the preview of a change shows."""

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from dead_letter_entries import dead_fields
from redis.asyncio import Redis
from shipped import as_admin
from support import eventually

from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable
from ingest.operations.failed_orders.entries import DeadLetterEntries
from ingest.operations.failed_orders.entry_counts import EntryCount, EntryCounts
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.queue_parts import layout_reader
from ingest.queue.operate.repeated_calls import refuse_to_wait
from ingest.queue.redis.connection import control_client

SOURCE = "shop"
LOCKED = Selection(filter=EntryFilter(text="locked"))


@pytest_asyncio.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with control_client(as_admin(redis_url)) as client:
        yield client


def counts_of(redis: Redis, queue: str) -> EntryCounts:
    dead_letters = DeadLetters(redis, layout_reader(redis, queue), on_wait=refuse_to_wait)
    return EntryCounts({SOURCE: {EntryKind.DEAD_LETTERS: DeadLetterEntries(dead_letters)}})


async def test_a_count_continues_after_a_request_that_does_not_wait_for_it(redis: Redis, queue_name: str) -> None:
    async with redis.pipeline() as pipe:
        for number in range(1000):
            pipe.xadd(Keys.of(queue_name).dead, dead_fields(number, error="locked" if number % 4 else "gone"))  # type: ignore[arg-type]
        await pipe.execute()

    async with counts_of(redis, queue_name) as counts:
        first = await counts.of(SOURCE, EntryKind.DEAD_LETTERS, LOCKED, wait=0)
        assert first.found is None

        async def complete() -> EntryCount | None:
            count = await counts.of(SOURCE, EntryKind.DEAD_LETTERS, LOCKED, wait=0)
            return count if count.found is not None else None

        found = await eventually(complete)

    assert found is not None
    assert found.found is not None
    assert (found.found.count, found.found.reasons, found.examined) == (750, {"not_found": 750}, 1000)
    assert found.found.newest.keys() == {queue_name}


async def test_a_failed_count_is_reported_and_begins_again(queue_name: str, redis: Redis) -> None:
    async with control_client("redis://127.0.0.1:1") as unavailable, counts_of(unavailable, queue_name) as counts:
        for _ in range(2):
            with pytest.raises(QueueUnavailable):
                await counts.of(SOURCE, EntryKind.DEAD_LETTERS, LOCKED, wait=30)
    async with counts_of(redis, queue_name) as counts:
        assert (await counts.of(SOURCE, EntryKind.DEAD_LETTERS, LOCKED, wait=30)).found is not None


async def test_all_requests_that_wait_for_a_count_get_its_failure(queue_name: str) -> None:
    async with control_client("redis://127.0.0.1:1") as unavailable, counts_of(unavailable, queue_name) as counts:
        failures = await asyncio.gather(
            *(counts.of(SOURCE, EntryKind.DEAD_LETTERS, LOCKED, wait=30) for _ in range(3)), return_exceptions=True
        )

    assert [type(failure) for failure in failures] == [QueueUnavailable] * 3


async def test_a_count_that_makes_room_for_others_is_incomplete(queue_name: str, redis: Redis) -> None:
    async with counts_of(redis, queue_name) as counts:
        first = asyncio.create_task(counts.of(SOURCE, EntryKind.DEAD_LETTERS, LOCKED, wait=30))
        await asyncio.sleep(0)
        others = [Selection(filter=EntryFilter(text=str(number))) for number in range(50)]
        await asyncio.gather(*(counts.of(SOURCE, EntryKind.DEAD_LETTERS, other, wait=0) for other in others))

        assert (await first).found is None
