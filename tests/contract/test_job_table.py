"""Jobs in the table `jobs`."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from shipped import as_api
from support import connected

from ingest.domain.operating.audited_operation import AuditedOperation, AuditFilter, OperationState
from ingest.domain.operating.backfill import BackfillRequest
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest, JobState
from ingest.domain.orders.field_differences import ChangePreview
from ingest.services.jobs.job_search import OF_WORKERS, JobSearch
from ingest.store.audit_reading import audited_operations
from ingest.store.connections.pool import Pool
from ingest.store.jobs import Jobs, LeaseLost, find_job, newest_jobs, waiting_jobs

REPLAY = JobRequest(JobKind.REPLAY, {"reasons": ["not_found"]}, total=7, rate=100.0)
BACKFILL = BackfillRequest(datetime(2026, 10, 1, tzinfo=UTC), datetime(2026, 11, 1, tzinfo=UTC), 5.0).as_job()
PREVIEW = JobRequest(JobKind.PREVIEW, {"sample": 20})
OF_ALL_KINDS = pytest.mark.parametrize("request_", [REPLAY, BACKFILL, PREVIEW], ids=lambda request: request.kind.value)
_REMAP = JobRequest(JobKind.REMAP, {}, total=1, rate=1.0)
# More than the runs of a process.
MANY = 25
PROGRESS = JobProgress(3, 0, 9, {"next_page": "page-2", "missing": 2, "outdated": 1}, 2.5)
RESULT = ChangePreview(0, 0, 0, [], [])
FURTHER = JobProgress(4, 0, 10, {"next_page": "page-3", "missing": 3, "outdated": 1}, 2.5)


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    async with Pool.open(dsn, size=2) as pool:
        yield pool


async def added_to(jobs: Jobs, request: JobRequest = REPLAY, holder: str | None = None) -> Job:
    added = await jobs.add(request, "cli:me", holder)
    assert added is not None
    return added


@OF_ALL_KINDS
async def test_a_job_is_taken_recorded_and_ended_by_the_holder_of_its_lease_only(
    pool: Pool, request_: JobRequest
) -> None:
    jobs = Jobs(pool, "shop-de")
    added = await added_to(jobs, request_)
    assert (added.state, added.request, added.requested_by) == (JobState.WAITING, request_, "cli:me")

    [held] = filter(None, await asyncio.gather(*(jobs.take(added.id, f"w-{number}") for number in range(8))))

    assert (held.state, held.lease) == (JobState.RUNNING, 1)
    await jobs.record(held, PROGRESS)
    await jobs.release(held)
    second = await jobs.take(added.id, "two")
    assert second is not None
    assert (second.progress, second.lease) == (PROGRESS, 2)
    for change in (
        jobs.record(held, PROGRESS),
        jobs.renew(held),
        jobs.release(held),
        jobs.end(held, JobState.DONE, PROGRESS),
    ):
        with pytest.raises(LeaseLost):
            await change
    await jobs.end(second, JobState.FAILED, PROGRESS, "a problem")
    ended = await jobs.get(added.id)
    assert ended is not None
    assert (ended.state, ended.error, ended.progress) == (JobState.FAILED, "a problem", PROGRESS)
    assert ended.ended_at is not None


@OF_ALL_KINDS
async def test_a_job_belongs_to_its_source(pool: Pool, request_: JobRequest) -> None:
    jobs, others = Jobs(pool, "shop-de"), Jobs(pool, "shop-fr")
    waiting, held = await added_to(jobs, REPLAY), await added_to(jobs, request_, "one")

    assert await others.get(held.id) is None
    assert await others.take(waiting.id, "two") is None
    assert await others.cancel(held.id) is None
    for change in (others.record(held, FURTHER), others.renew(held), others.release(held)):
        with pytest.raises(LeaseLost):
            await change
    with pytest.raises(LeaseLost):
        await others.end(held, JobState.DONE, FURTHER)
    await jobs.end(held, JobState.FAILED, PROGRESS, result=RESULT)

    assert await others.reopen(held.id) is None
    assert [await each.result(held.id) for each in (jobs, others)] == [RESULT, None]
    found = [await jobs.get(each.id) for each in (waiting, held)]
    assert [(each.state, each.lease) for each in found if each] == [(JobState.WAITING, 0), (JobState.FAILED, 1)]


@OF_ALL_KINDS
async def test_a_process_that_adds_or_reopens_a_job_holds_it_from_the_beginning(
    pool: Pool, request_: JobRequest
) -> None:
    jobs = Jobs(pool)

    added = await added_to(jobs, request_, "w-1")
    taken = await jobs.take(added.id, "w-2")
    await jobs.cancel(added.id)
    reopened = await jobs.reopen(added.id, "w-3")

    assert (added.state, added.holder, taken) == (JobState.RUNNING, "w-1", None)
    assert reopened is not None
    assert (reopened.state, reopened.holder, await jobs.take(added.id, "w-4")) == (JobState.RUNNING, "w-3", None)
    await jobs.renew(reopened)
    with pytest.raises(LeaseLost):
        await jobs.renew(added)


@OF_ALL_KINDS
async def test_a_lease_that_expires_counts_against_a_job_until_it_advances_and_one_that_is_released_does_not(
    pool: Pool, dsn: str, request_: JobRequest
) -> None:
    jobs = Jobs(pool)
    added = await added_to(jobs, request_)
    counts = []

    async def taken() -> Job:
        held = await jobs.take(added.id, "one")
        assert held is not None
        counts.append(held.expired_leases)
        return held

    async with connected(dsn) as sql:
        for progress in (PROGRESS, PROGRESS, FURTHER):
            await jobs.record(await taken(), progress)
            await sql.execute("UPDATE jobs SET leased_until = clock_timestamp()")
    await jobs.release(await taken())
    await jobs.end(await taken(), JobState.FAILED, PROGRESS)
    reopened = await jobs.reopen(added.id)
    assert reopened is not None

    assert (counts, reopened.expired_leases) == ([0, 1, 2, 1, 1], 0)


async def test_a_preview_does_not_advance_because_it_begins_again(pool: Pool, dsn: str) -> None:
    jobs = Jobs(pool)
    added = await added_to(jobs, PREVIEW)
    counts = []

    async with connected(dsn) as sql:
        for examined in (1, 2, 3):
            held = await jobs.take(added.id, "one")
            assert held is not None
            counts.append(held.expired_leases)
            await jobs.record(held, JobProgress(examined=examined))
            await sql.execute("UPDATE jobs SET leased_until = clock_timestamp()")

    assert counts == [0, 1, 2]


@OF_ALL_KINDS
async def test_a_cancelled_job_is_not_recorded_any_more_and_continues_when_it_is_reopened(
    pool: Pool, request_: JobRequest
) -> None:
    jobs = Jobs(pool)
    held = await added_to(jobs, request_, "one")
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


@OF_ALL_KINDS
async def test_a_job_has_one_entry_in_the_audit_log_which_ends_with_it(
    pool: Pool, dsn: str, request_: JobRequest
) -> None:
    jobs = Jobs(pool, "shop-de")

    async def entries() -> list[AuditedOperation]:
        async with Pool.open(as_api(dsn), size=1) as reading:
            return await audited_operations(reading, AuditFilter(), 10)

    held = await added_to(jobs, request_, "one")
    [begun] = await entries()
    await jobs.cancel(held.id)
    [cancelled] = await entries()
    reopened = await jobs.reopen(held.id, "two")
    [resumed] = await entries()
    assert reopened is not None
    await jobs.end(reopened, JobState.DONE, PROGRESS)
    [done] = await entries()

    assert (begun.actor, begun.action, begun.source) == ("cli:me", held.kind.action, "shop-de")
    assert begun.selection == {"job": held.id, "rate": request_.rate, **request_.selection}
    states = [(each.state, each.count) for each in (begun, cancelled, resumed, done)]
    unfinished = OperationState.UNFINISHED, None
    assert states == [unfinished, (OperationState.FAILED, 0), unfinished, (OperationState.DONE, 3)]


@OF_ALL_KINDS
async def test_the_entry_of_a_job_of_an_api_key_ends_when_a_worker_ends_the_job(dsn: str, request_: JobRequest) -> None:
    async with Pool.open(as_api(dsn), size=1) as of_the_api, Pool.open(dsn, size=1) as of_workers:
        added = await Jobs(of_the_api, "shop-de").add(request_, "shop")
        assert added is not None
        jobs = Jobs(of_workers, "shop-de")
        held = await jobs.take(added.id, "worker")
        assert held is not None

        await jobs.end(held, JobState.DONE, PROGRESS)

        [entry] = await audited_operations(of_the_api, AuditFilter(), 10)
    assert (entry.actor, entry.state, entry.count) == ("shop", OperationState.DONE, 3)


async def test_a_source_has_many_jobs_and_one_backfill_and_all_are_in_one_list(pool: Pool) -> None:
    jobs, other = Jobs(pool, "shop-de"), Jobs(pool, "shop-fr")
    first, second = await added_to(jobs), await added_to(jobs)
    third = await added_to(other, JobRequest(JobKind.DROP, {"everything": True}))

    added = await asyncio.gather(*(jobs.add(BACKFILL, "cli:me") for _ in range(8)))

    [backfill] = filter(None, added)
    assert await other.add(BACKFILL, "cli:me") is not None
    listed = await newest_jobs(pool, ["shop-de"], 10)
    assert [job.id for job in listed] == [backfill.id, second.id, first.id]
    assert [job.id for job in await newest_jobs(pool, ["shop-de"], 2, backfill.id)] == [second.id, first.id]
    assert [job.id for job in await newest_jobs(pool, ["shop-de", "shop-fr"], 9, None, [JobKind.DROP])] == [third.id]
    assert await find_job(pool, ["shop-fr"], first.id) is None
    found = await waiting_jobs(pool, ["shop-de"], [JobKind.REPLAY, JobKind.BACKFILL])
    assert found == [("shop-de", JobKind.BACKFILL, backfill.id), ("shop-de", JobKind.REPLAY, first.id)]
    assert await jobs.unfinished_backfill() == backfill


async def test_a_backfill_is_not_reopened_while_another_one_is_unfinished(pool: Pool) -> None:
    jobs = Jobs(pool)
    first = await added_to(jobs, BACKFILL)
    await jobs.cancel(first.id)
    second = await added_to(jobs, BACKFILL)

    refused = await jobs.reopen(first.id)
    await jobs.cancel(second.id)
    reopened = await jobs.reopen(first.id)

    assert refused is None
    assert reopened is not None


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
    search = JobSearch(connection, OF_WORKERS)
    wanted = {source: search.wanted([source]) for source in ("shop-de", "shop-fr", "shop-it")}
    for source in ("shop-de", "shop-it"):
        await added_to(Jobs(pool, source), _REMAP)

    await search.search()

    assert {source for source, event in wanted.items() if event.is_set()} == {"shop-de", "shop-it"}
    assert connection.statements == 1


async def test_a_source_with_many_jobs_does_not_hide_the_jobs_of_another(pool: Pool) -> None:
    search = JobSearch(pool, OF_WORKERS)
    busy, other = search.wanted(["shop-de"]), search.wanted(["shop-fr"])
    for source in ["shop-de"] * MANY + ["shop-fr"]:
        await added_to(Jobs(pool, source), _REMAP)

    await search.search()
    assert busy.is_set()
    await search.search()

    assert other.is_set()
