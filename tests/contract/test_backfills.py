"""Backfills in the table `jobs` on a real PostgreSQL: one unfinished per source, one holder, and nothing written without the lease."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import msgspec
import pytest
from support import connected

from ingest.domain.operating.backfill import BackfillProgress, BackfillRequest, JobState
from ingest.store.backfills import Backfills, LeaseLost, newest_backfills
from ingest.store.connections.pool import Pool

REQUEST = BackfillRequest(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC), 5.0)


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    async with Pool.open(dsn) as pool:
        yield pool


async def test_of_many_requests_at_once_one_adds_a_backfill_and_another_source_has_its_own(pool: Pool) -> None:
    backfills = Backfills(pool, "shop-de")

    added = await asyncio.gather(*(backfills.add(REQUEST, "cli:me") for _ in range(8)))
    other = await Backfills(pool, "shop-fr").add(REQUEST, "cli:me")

    [one] = [each for each in added if each is not None]
    assert (one.source, one.state, one.request, one.requested_by) == ("shop-de", JobState.WAITING, REQUEST, "cli:me")
    assert await backfills.unfinished() == one
    assert other is not None
    assert [each.id for each in await newest_backfills(pool, ["shop-de", "shop-fr"], 5)] == [other.id, one.id]
    assert await backfills.get(other.id) is None


async def test_a_dry_run_stays_one_when_it_is_resumed_and_excludes_a_backfill_of_its_source(pool: Pool) -> None:
    backfills = Backfills(pool)
    added = await backfills.add(msgspec.structs.replace(REQUEST, dry_run=True), "cli:me")
    assert added is not None

    second = await backfills.add(REQUEST, "cli:me")
    await backfills.cancel(added.id)
    resumed = await backfills.reopen(added.id)

    assert second is None
    assert resumed is not None
    assert resumed.request.dry_run


async def test_a_process_that_adds_or_reopens_a_backfill_holds_it_from_the_beginning(pool: Pool) -> None:
    backfills = Backfills(pool)

    added = await backfills.add(REQUEST, "cli:me", "w-1")
    taken = await backfills.take_waiting("w-2")
    assert added is not None
    await backfills.cancel(added.id)
    reopened = await backfills.reopen(added.id, "w-3")
    retaken = await backfills.take_waiting("w-4")

    assert (added.state, added.holder, taken) == (JobState.RUNNING, "w-1", None)
    assert reopened is not None
    assert (reopened.state, reopened.holder, retaken) == (JobState.RUNNING, "w-3", None)
    await backfills.renew(reopened)
    with pytest.raises(LeaseLost):
        await backfills.renew(added)


async def test_one_process_takes_a_waiting_backfill(pool: Pool) -> None:
    backfills = Backfills(pool)
    await backfills.add(REQUEST, "cli:me")

    taken = await asyncio.gather(*(backfills.take_waiting(f"w-{number}") for number in range(8)))

    [held] = [each for each in taken if each is not None]
    assert (held.state, held.lease) == (JobState.RUNNING, 1)
    assert held.holder in {f"w-{number}" for number in range(8)}


async def test_a_process_whose_lease_has_expired_can_write_nothing_after_another_has_taken_the_job(
    pool: Pool, dsn: str
) -> None:
    backfills = Backfills(pool)
    await backfills.add(REQUEST, "cli:me")
    before = await backfills.take_waiting("before")
    assert before is not None
    await backfills.record(before, BackfillProgress("page-2", 10, 3, 1))
    async with connected(dsn) as sql:
        await sql.execute("UPDATE jobs SET leased_until = clock_timestamp()")

    after = await backfills.take_waiting("after")

    assert after is not None
    assert (after.progress, after.lease) == (BackfillProgress("page-2", 10, 3, 1), 2)
    for write in (
        backfills.renew(before),
        backfills.record(before, BackfillProgress("page-9")),
        backfills.release(before),
        backfills.end(before, JobState.DONE, BackfillProgress()),
    ):
        with pytest.raises(LeaseLost):
            await write
    assert await backfills.get(after.id) == after
    await backfills.release(after)
    assert (await backfills.take_waiting("third")) is not None


async def test_a_cancelled_backfill_is_left_by_its_process_and_can_be_opened_again(pool: Pool) -> None:
    backfills = Backfills(pool)
    added = await backfills.add(REQUEST, "cli:me")
    held = await backfills.take_waiting("w")
    assert added is not None
    assert held is not None
    await backfills.record(held, BackfillProgress("page-2", 10, 3, 1))

    cancelled = await backfills.cancel(added.id)

    assert cancelled is not None
    assert cancelled.state is JobState.CANCELLED
    with pytest.raises(LeaseLost):
        await backfills.renew(held)
    assert await backfills.cancel(added.id) is None
    second = await backfills.add(REQUEST, "cli:me")
    assert second is not None
    assert await backfills.reopen(added.id) is None, "another one is unfinished"
    await backfills.cancel(second.id)
    reopened = await backfills.reopen(added.id)
    assert reopened is not None
    assert (reopened.state, reopened.progress.next_page) == (JobState.WAITING, "page-2")


async def test_a_backfill_that_is_done_keeps_its_counts(pool: Pool) -> None:
    backfills = Backfills(pool)
    await backfills.add(REQUEST, "cli:me")
    held = await backfills.take_waiting("w")
    assert held is not None

    await backfills.end(held, JobState.DONE, BackfillProgress(None, 20, 5, 2))

    ended = await backfills.get(held.id)
    assert ended is not None
    assert (ended.state, ended.progress, ended.enqueued) == (JobState.DONE, BackfillProgress(None, 20, 5, 2), 7)
    assert await backfills.unfinished() is None
    assert await backfills.reopen(held.id) is None
