"""Jobs in the table `jobs`."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from support import connected

from ingest.domain.operating.backfill import BackfillRequest
from ingest.domain.operating.jobs import JobKind, JobProgress, JobRequest, JobState
from ingest.services.workers.job_search import JobSearch
from ingest.store.backfills import Backfills, LeaseLost
from ingest.store.connections.pool import Pool
from ingest.store.jobs import Jobs, find_job, newest_jobs, waiting_jobs

REQUEST = JobRequest(JobKind.REPLAY, {"reasons": ["not_found"]}, total=7, rate=100.0)
_PERIOD = BackfillRequest(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC))
_REMAP = JobRequest(JobKind.REMAP, {}, total=1, rate=1.0)
# More than one search finds.
MANY = 25
PROGRESS = JobProgress(3, 1, 9, {"orders": {"after": "7-0", "until": "9-1"}}, 2.5)


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    async with Pool.open(dsn, size=2) as pool:
        yield pool


async def test_a_job_is_taken_recorded_and_ended_by_the_holder_of_its_lease_only(pool: Pool) -> None:
    jobs = Jobs(pool, "shop-de")
    added = await jobs.add(REQUEST, "cli:me")
    assert (added.state, added.request, added.requested_by) == (JobState.WAITING, REQUEST, "cli:me")

    held = await jobs.take(added.id, "one")

    assert held is not None
    assert held.state is JobState.RUNNING
    assert await jobs.take(added.id, "two") is None
    await jobs.record(held, PROGRESS)
    await jobs.release(held)
    second = await jobs.take(added.id, "two")
    assert second is not None
    assert second.progress == PROGRESS
    for change in (jobs.record(held, PROGRESS), jobs.renew(held), jobs.end(held, JobState.DONE, PROGRESS)):
        with pytest.raises(LeaseLost):
            await change
    await jobs.end(second, JobState.FAILED, PROGRESS, "a problem")
    ended = await jobs.get(added.id)
    assert ended is not None
    assert (ended.state, ended.error, ended.progress) == (JobState.FAILED, "a problem", PROGRESS)
    assert ended.ended_at is not None


async def test_a_lease_that_expires_counts_against_a_job_and_one_that_is_released_does_not(
    pool: Pool, dsn: str
) -> None:
    jobs = Jobs(pool)
    added = await jobs.add(REQUEST, "cli:me")
    counts = []
    async with connected(dsn) as sql:
        for _ in range(2):
            held = await jobs.take(added.id, "one")
            assert held is not None
            counts.append(held.expired_leases)
            await sql.execute("UPDATE jobs SET leased_until = clock_timestamp()")
    last = await jobs.take(added.id, "two")
    assert last is not None
    await jobs.release(last)
    after = await jobs.take(added.id, "three")
    assert after is not None
    await jobs.end(after, JobState.FAILED, PROGRESS)
    reopened = await jobs.reopen(added.id)
    assert reopened is not None

    assert [*counts, last.expired_leases, after.expired_leases, reopened.expired_leases] == [0, 1, 2, 2, 0]


async def test_a_cancelled_job_is_not_recorded_any_more_and_continues_when_it_is_reopened(pool: Pool) -> None:
    jobs = Jobs(pool)
    held = await jobs.take((await jobs.add(REQUEST, "cli:me")).id, "one")
    assert held is not None
    await jobs.record(held, PROGRESS)

    cancelled = await jobs.cancel(held.id)

    assert cancelled is not None
    assert cancelled.state is JobState.CANCELLED
    with pytest.raises(LeaseLost):
        await jobs.record(held, PROGRESS)
    assert await jobs.cancel(held.id) is None
    reopened = await jobs.reopen(held.id)
    assert reopened is not None
    assert (reopened.state, reopened.progress) == (JobState.WAITING, PROGRESS)


async def test_a_source_has_many_jobs_and_one_backfill_and_all_are_in_one_list(
    pool: Pool,
) -> None:
    jobs, other = Jobs(pool, "shop-de"), Jobs(pool, "shop-fr")
    first, second = await jobs.add(REQUEST, "cli:me"), await jobs.add(REQUEST, "cli:me")
    third = await other.add(JobRequest(JobKind.DROP, {"everything": True}), "cli:me")
    backfill = await Backfills(pool, "shop-de").add(_PERIOD, "cli:me")
    assert backfill is not None
    assert await Backfills(pool, "shop-de").add(_PERIOD, "cli:me") is None

    listed = await newest_jobs(pool, ["shop-de", "shop-fr"], 10)

    assert [job.id for job in listed] == [backfill.id, third.id, second.id, first.id]
    assert [job.id for job in await newest_jobs(pool, ["shop-de"], 2, backfill.id)] == [second.id, first.id]
    assert [job.id for job in await newest_jobs(pool, ["shop-de", "shop-fr"], 9, None, [JobKind.DROP])] == [third.id]
    assert listed[0].request.selection["dry_run"] is False
    assert await find_job(pool, ["shop-fr"], first.id) is None
    kinds = [JobKind.REPLAY, JobKind.BACKFILL]
    assert await waiting_jobs(pool, ["shop-de"], kinds) == [("shop-de", first.id), ("shop-de", second.id)]
    assert await jobs.take(backfill.id, "one") is None


class Counted:
    """A connection that counts its statements."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self.statements = 0

    async def fetch(self, statement: Any, *arguments: Any) -> Any:
        self.statements += 1
        return await self._pool.fetch(statement, *arguments)


async def test_one_statement_finds_the_jobs_of_all_sources(pool: Pool) -> None:
    connection = Counted(pool)
    search = JobSearch(connection)
    wanted = {source: search.wanted(source) for source in ("shop-de", "shop-fr", "shop-it")}
    for source in ("shop-de", "shop-it"):
        assert await Jobs(pool, source).add(_REMAP, "cli:me") is not None

    await search.search()

    assert {source for source, event in wanted.items() if event.is_set()} == {"shop-de", "shop-it"}
    assert connection.statements == 1


async def test_a_source_with_many_jobs_does_not_hide_the_jobs_of_another(pool: Pool) -> None:
    search = JobSearch(pool)
    busy, other = search.wanted("shop-de"), search.wanted("shop-fr")
    for source in ["shop-de"] * MANY + ["shop-fr"]:
        assert await Jobs(pool, source).add(_REMAP, "cli:me") is not None

    await search.search()
    assert busy.is_set()
    await search.search()

    assert other.is_set()
