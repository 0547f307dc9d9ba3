"""The files of jobs in the table `job_output`."""

from collections.abc import AsyncIterator

import pytest
from shipped import as_api
from support import connected

from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest, JobState
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput, delete_expired_output
from ingest.store.jobs import Jobs, LeaseLost

_REQUEST = JobRequest(JobKind.EXPORT, {"everything": True, "format": "jsonl"})
_FIRST, _SECOND = JobProgress(1, 0, 4, {"orders": "1-0"}), JobProgress(2, 0, 9, {"orders": "7-0"})


@pytest.fixture
async def pool(dsn: str) -> AsyncIterator[Pool]:
    async with Pool.open(as_api(dsn), size=2) as pool:
        yield pool


@pytest.fixture
async def held(pool: Pool) -> Job:
    added = await Jobs(pool, "shop-de").add(_REQUEST, "me", "one")
    assert added is not None
    return added


async def text_of(output: JobOutput, job: int) -> bytes:
    return b"".join([text async for text in output.texts(job)])


async def test_a_file_consists_of_its_parts_and_continues_after_the_last_one(pool: Pool, held: Job) -> None:
    output = JobOutput(pool, "shop-de")
    assert await output.parts(held.id) == (0, JobProgress())

    await output.add(held, 0, "a\n", _FIRST)
    await output.add(held, 1, "bäh\n" * 1000, _SECOND)
    # After a lost response.
    await output.add(held, 1, "bäh\n" * 1000, _SECOND)

    assert await output.parts(held.id) == (2, _SECOND)
    assert await text_of(output, held.id) == ("a\n" + "bäh\n" * 1000).encode()


async def test_a_process_that_has_lost_its_lease_adds_nothing(pool: Pool, held: Job) -> None:
    output, jobs = JobOutput(pool, "shop-de"), Jobs(pool, "shop-de")
    await output.add(held, 0, "a\n", _FIRST)
    await jobs.release(held)
    second = await jobs.take(held.id, "two")
    assert second is not None

    with pytest.raises(LeaseLost):
        await output.add(held, 1, "x\n", _SECOND)
    await output.add(second, 1, "b\n", _SECOND)
    await jobs.cancel(held.id)
    with pytest.raises(LeaseLost):
        await output.add(second, 2, "x\n", _SECOND)

    assert await text_of(output, held.id) == b"a\nb\n"


async def test_a_part_renews_the_lease(pool: Pool, held: Job) -> None:
    await pool.fetch("UPDATE jobs SET leased_until = clock_timestamp()")

    await JobOutput(pool, "shop-de").add(held, 0, "a\n", _FIRST)

    assert await Jobs(pool, "shop-de").take(held.id, "two") is None


async def test_another_source_has_no_part_of_the_file(pool: Pool, held: Job) -> None:
    await JobOutput(pool, "shop-de").add(held, 0, "a\n", _FIRST)
    other = JobOutput(pool, "shop-fr")

    assert await other.parts(held.id) == (0, JobProgress())
    assert await text_of(other, held.id) == b""
    with pytest.raises(LeaseLost):
        await other.add(held, 1, "b\n", _SECOND)


async def test_a_file_is_deleted_7_days_after_its_job_has_ended(dsn: str, pool: Pool, held: Job) -> None:
    output, jobs = JobOutput(pool, "shop-de"), Jobs(pool, "shop-de")
    running = await jobs.add(_REQUEST, "me", "one")
    assert running is not None
    for each in (held, running):
        await output.add(each, 0, "a\n", _FIRST)
    await jobs.end(held, JobState.DONE, _FIRST)

    async with connected(dsn) as sql:
        await sql.execute("UPDATE jobs SET ended_at = ended_at - interval '6 days 23 hours'")
    await delete_expired_output(pool)
    assert await text_of(output, held.id) == b"a\n"
    async with connected(dsn) as sql:
        await sql.execute("UPDATE jobs SET ended_at = ended_at - interval '2 hours'")
    await delete_expired_output(pool)

    assert await output.parts(held.id) == (0, JobProgress())
    assert await text_of(output, running.id) == b"a\n"


async def test_a_file_that_is_deleted_while_it_is_read_is_not_complete(dsn: str, pool: Pool, held: Job) -> None:
    output = JobOutput(pool, "shop-de")
    for part in range(2):
        await output.add(held, part, "a\n", _FIRST)
    texts = output.texts(held.id)
    await anext(texts)

    async with connected(dsn) as sql:
        await sql.execute("DELETE FROM jobs")

    with pytest.raises(LookupError):
        await anext(texts)
