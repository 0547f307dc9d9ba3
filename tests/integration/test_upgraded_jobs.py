"""Jobs, backfills and previews that the previous release runs while the schema is upgraded. Nothing is repeated or lost.

The statements are those of the release before migration 19, as it sends them.
"""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime

import asyncpg
import msgspec
import pytest
from integration.job_bench import Bench
from integration.scene import Scene
from integration.test_backfill_run import REQUEST, Listed, Site, ids, place
from support import connected

from ingest.domain.operating.audited_operation import AuditFilter, OperationState
from ingest.domain.operating.backfill import BackfillProgress, BackfillRequest
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.domain.orders.field_differences import ChangePreview
from ingest.domain.orders.order_filter import OrderFilter
from ingest.domain.orders.plain_order import StorableOrder
from ingest.operations.backends import Backends
from ingest.operations.jobs.entries import EntryChanges
from ingest.operations.jobs.orders import preview_request
from ingest.operations.jobs.run import JobRun
from ingest.queue.redis.connection import control_client
from ingest.store.audit_reading import audited_operations
from ingest.store.connections.pool import Pool
from ingest.store.jobs import Jobs
from ingest.store.schema import migrate, migrations

_UNTIL = "clock_timestamp() + make_interval(secs => 30)"
_HELD = "kind = 'backfill' AND source = $1 AND id = $2 AND state = 'active' AND lease = $3"
ADD_BACKFILL = f"""
INSERT INTO jobs (kind, source, since, until, rate, dry_run, requested_by, lease, holder, leased_until, started_at)
SELECT 'backfill', $1, $2, $3, $4, $5, $6, CASE WHEN $7::text IS NULL THEN 0 ELSE 1 END, $7,
    CASE WHEN $7 IS NOT NULL THEN {_UNTIL} END, CASE WHEN $7 IS NOT NULL THEN clock_timestamp() END
WHERE NOT EXISTS (SELECT FROM jobs WHERE kind = 'backfill' AND source = $1 AND state = 'active')
ON CONFLICT DO NOTHING RETURNING id
"""
RECORD_BACKFILL = f"""
UPDATE jobs SET leased_until = {_UNTIL}, next_page = $4, listed = $5, missing = $6, outdated = $7, error = NULL
WHERE {_HELD} RETURNING id
"""
TAKE_BACKFILL = f"""
UPDATE jobs SET lease = lease + 1, holder = $3, leased_until = {_UNTIL}, started_at = coalesce(started_at, clock_timestamp())
WHERE kind = 'backfill' AND source = $1 AND id = $2 AND state = 'active'
    AND coalesce(leased_until, '-infinity') <= clock_timestamp()
RETURNING since, until, dry_run, next_page, listed, missing, outdated, lease
"""
END_BACKFILL = f"""
UPDATE jobs SET ended_at = clock_timestamp(), leased_until = NULL, next_page = $4, listed = $5, missing = $6, outdated = $7,
    state = $8, error = $9 WHERE {_HELD} RETURNING id
"""
ADD_JOB = """
INSERT INTO jobs (kind, source, selection, total, rate, requested_by, lease, holder, leased_until, started_at)
SELECT $2, $1, $3::text::jsonb, $4, $5, $6, CASE WHEN $7::text IS NULL THEN 0 ELSE 1 END, $7,
    CASE WHEN $7 IS NOT NULL THEN clock_timestamp() + make_interval(secs => 10) END,
    CASE WHEN $7 IS NOT NULL THEN clock_timestamp() END
RETURNING id
"""
RECORD_JOB = """
UPDATE jobs SET leased_until = clock_timestamp() + make_interval(secs => 10), error = NULL, done = $4, gone = $5, examined = $6,
    position = $7::text::jsonb, per_second = $8
WHERE source = $1 AND id = $2 AND state = 'active' AND lease = $3 RETURNING id
"""
EXPIRE = "UPDATE jobs SET leased_until = clock_timestamp()"
BEFORE = migrations()[:18]
PERIOD = (REQUEST.since, REQUEST.until, REQUEST.rate)


@pytest.fixture
async def scene(redis_url: str, empty_dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    await migrate(empty_dsn, BEFORE)
    async with Scene.open(redis_url, empty_dsn, queue_name) as scene:
        yield scene


@pytest.fixture
async def site(scene: Scene) -> AsyncIterator[Site]:
    async with Site.open(scene) as site:
        yield site


@pytest.fixture
async def sql(empty_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    async with connected(empty_dsn) as sql:
        yield sql


async def taken(jobs: Jobs, job: int) -> Job:
    held = await jobs.take(job, "this release")
    assert held is not None
    return held


@pytest.mark.parametrize("dry_run", [False, True])
async def test_a_backfill_that_runs_during_the_upgrade_continues_from_its_page(
    site: Site, sql: asyncpg.Connection, *, dry_run: bool
) -> None:
    job = await sql.fetchval(ADD_BACKFILL, "", *PERIOD, dry_run, "shop", "previous release")
    await sql.fetch(RECORD_BACKFILL, "", job, 1, place("1"), 3, 2, 1)

    await migrate(site.scene.dsn, migrations())
    # Its process continues, and is then killed.
    assert await sql.fetch(RECORD_BACKFILL, "", job, 1, place("2"), 6, 4, 2)
    await sql.execute(EXPIRE)
    held = await taken(site.jobs, job)
    listed = Listed(4)
    state = await JobRun(held, site.parts(listed)).run()

    assert BackfillRequest.of(held) == BackfillRequest(*PERIOD, dry_run=dry_run)
    assert BackfillProgress.of(held.progress) == BackfillProgress(place("2"), 6, 4, 2)
    assert (state, listed.requested) == (JobState.DONE, ["2", "3"])
    assert await site.enqueued() == ([] if dry_run else ids(2, 3))
    assert await site.progress() == BackfillProgress(None, 12, 10, 2)


async def test_a_worker_of_the_previous_release_continues_a_backfill_of_this_one(
    site: Site, sql: asyncpg.Connection
) -> None:
    await migrate(site.scene.dsn, migrations())
    held = await site.jobs.add(REQUEST.as_job(), "cli:me", "this release")
    assert held is not None
    await site.jobs.record(held, BackfillProgress(place("2"), 6, 4, 2).as_job(dry_run=False))
    await sql.execute(EXPIRE)

    assert await sql.fetchval(ADD_BACKFILL, "", *PERIOD, False, "shop", None) is None
    [found] = await sql.fetch(TAKE_BACKFILL, "", held.id, "previous release")
    assert await sql.fetch(END_BACKFILL, "", held.id, 2, place("3"), 9, 6, 3, "failed", "HTTP 401")
    ended = await site.newest()

    assert tuple(found) == (REQUEST.since, REQUEST.until, False, place("2"), 6, 4, 2, 2)
    assert (ended.state, ended.error) == (JobState.FAILED, "HTTP 401")
    assert await site.progress() == BackfillProgress(place("3"), 9, 6, 3)
    reopened = await site.jobs.reopen(held.id, "this release")
    assert reopened is not None
    assert BackfillProgress.of(reopened.progress) == BackfillProgress(place("3"), 9, 6, 3)


async def test_backfills_that_have_ended_before_the_upgrade_are_shown_as_before(
    site: Site, sql: asyncpg.Connection
) -> None:
    job = await sql.fetchval(ADD_BACKFILL, "", REQUEST.since, REQUEST.until, 2.5, True, "shop", "previous release")
    await sql.fetch(END_BACKFILL, "", job, 1, None, 9, 6, 3, "done", None)

    await migrate(site.scene.dsn, migrations())

    ended = await site.newest()
    assert (ended.id, ended.state) == (job, JobState.DONE)
    assert BackfillRequest.of(ended) == BackfillRequest(REQUEST.since, REQUEST.until, 2.5, dry_run=True)
    assert await site.progress() == BackfillProgress(None, 9, 6, 3)


async def test_a_replay_that_runs_during_the_upgrade_moves_each_dead_letter_once(
    scene: Scene, sql: asyncpg.Connection
) -> None:
    servers = Backends(scene.redis_url, scene.dsn, scene.queue)
    async with Pool.open(scene.dsn, size=2) as pool, control_client(scene.redis_url) as own:
        bench = Bench(scene.redis, own, pool, servers)
        await bench.add(300)
        request = await bench.request(JobKind.REPLAY, rate=50.0)
        selection = msgspec.json.encode(request.selection).decode()
        job = await sql.fetchval(ADD_JOB, "", JobKind.REPLAY.value, selection, None, 50.0, "shop", "previous release")
        held = Job(
            id=job,
            request=request,
            requested_by="shop",
            requested_at=datetime.now(UTC),
            state=JobState.RUNNING,
            progress=JobProgress(),
        )
        async with aclosing(EntryChanges(held, own, servers, lambda _: None).changes()) as changes:
            steps = [await anext(changes) for _ in range(4)]
        # The process was killed before it recorded its last steps.
        recorded = steps[1]
        position = msgspec.json.encode(recorded.position).decode()
        assert await sql.fetch(RECORD_JOB, "", job, 1, recorded.done, 0, recorded.examined, position, 1.0)

        await migrate(scene.dsn, migrations())
        await sql.execute(EXPIRE)
        held = await taken(bench.parts.jobs, job)
        held = msgspec.structs.replace(held, request=msgspec.structs.replace(held.request, rate=None))
        state = await JobRun(held, bench.parts).run()

        assert (held.kind, held.progress.done, state) == (JobKind.REPLAY, recorded.done, JobState.DONE)
        assert 0 < recorded.done < steps[-1].done < 300
        assert await bench.replayed() == Counter(f"o{number}" for number in range(300))
        assert (await bench.ended(held)).progress.done == 300
        [entry] = await audited_operations(pool, AuditFilter(), 10)
    assert (entry.actor, entry.action, entry.state, entry.count) == (
        "shop",
        "dead_letters.replay",
        OperationState.DONE,
        300,
    )


async def test_a_preview_that_runs_during_the_upgrade_begins_again(site: Site, sql: asyncpg.Connection) -> None:
    async def fetch(_: str, __: object) -> tuple[StorableOrder, ...]:
        raise AssertionError("there is no order")

    selection = msgspec.json.encode(preview_request(OrderFilter(status="changed")).selection).decode()
    job = await sql.fetchval(ADD_JOB, "", "orders.preview", selection, None, None, "shop", "previous release")
    assert await sql.fetch(RECORD_JOB, "", job, 1, 0, 0, 7, None, 0.0)

    await migrate(site.scene.dsn, migrations())
    await sql.execute(EXPIRE)
    held = await taken(site.jobs, job)
    state = await JobRun(held, replace(site.parts(Listed(0)), fetch=fetch)).run()

    assert (state, held.expired_leases) == (JobState.DONE, 1)
    result = await site.jobs.result(job)
    assert result == ChangePreview(0, 0, 0, [], [])
