"""Stored orders of a query are fetched again, after a preview of the fields that would change."""

import asyncio
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from http_api import Key, running_api
from integration.scene import Scene, document
from support import connected, eventually

from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest, JobState, RefetchedRows
from ingest.domain.orders.order_filter import OrderFilter, OrderPosition
from ingest.lab.upstream import Behaviour
from ingest.operations import jobs as operations
from ingest.operations.backends import Backends
from ingest.operations.jobs.orders import order_request
from ingest.operations.jobs.run import JobParts, JobRun
from ingest.operations.rebuilding.refetch_preview import preview_steps
from ingest.queue.redis.connection import control_client
from ingest.services.refetch_sample import fetching_orders
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs

INSERT_ORDERS = """
INSERT INTO orders (order_id, status, currency, placed_at, line_count, total, lines, version, fetched_at, attempts, enqueued_at, ingested_at)
SELECT id, 'placed', 'GBP', now(), 0, 0, '[]', now(), now(), 1, now(), now() FROM ids
"""
WRONG = [f"wrong-{number:03}" for number in range(30)]


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name, Behaviour()) as scene:
        yield scene


@asynccontextmanager
async def opened(backends: Backends) -> AsyncIterator[JobParts]:
    async with Pool.open(backends.postgres_dsn, size=1) as pool, control_client(backends.redis_url) as client:
        yield JobParts(client, backends, Jobs(pool), JobOutput(pool))


async def run_job(backends: Backends, request: JobRequest) -> Job:
    async with opened(backends) as parts:
        held = await operations.start(parts.jobs, request, "cli:me", "one")
        assert await JobRun(held, parts).run() is JobState.DONE
        found = await parts.jobs.get(held.id)
    assert found is not None
    return found


async def test_what_was_stored_wrongly_within_an_hour_is_previewed_and_stored_again(scene: Scene) -> None:
    for order_id in ("right", *WRONG):
        scene.api.put_order(order_id, document(order_id, updated_at="2026-01-02T03:04:05Z"))
    await scene.enqueue("right", *WRONG)
    async with scene.worker():
        await scene.finished()
    # As if another mapping had stored them two hours ago, with a version that keeps every later document out.
    await scene.sql(
        "UPDATE orders SET status = 'wrong', version = '2026-06-01', ingested_at = now() - interval '2 hours' WHERE order_id LIKE 'wrong-%'"
    )
    scene.api.delete_order("wrong-003")
    now = datetime.now(UTC)
    within = OrderFilter(stored_from=now - timedelta(hours=3), stored_to=now - timedelta(hours=1))
    settings = scene.settings(history=60.0)
    backends = Backends.of(settings)

    async with fetching_orders(settings, os.environ) as fetch:
        *_, preview = [each async for each in preview_steps(backends, within, fetch, 5)]
    ended = await run_job(backends, order_request(JobKind.ENQUEUE, within))
    scene.api.put_order("wrong-003", document("wrong-003"))
    async with scene.worker(history=60.0):
        await scene.finished()

    assert (preview.total, preview.fetched, preview.changed, ended.progress.done) == (30, 5, 4, 30)
    assert preview.fields.by_frequency() == [("status", 4)]
    assert preview.fields.examples["status"][0].after == "placed"
    assert [failure.order_id for failure in preview.failures] == ["wrong-003"]
    assert {row["status"] for row in (await scene.rows()).values()} == {"placed"}
    events = await scene.sql("SELECT event, count(*) FROM order_history GROUP BY event ORDER BY event")
    assert [tuple(row) for row in events] == [("changed", 30), ("refetched", 30)]


async def test_a_job_whose_process_ends_continues_after_its_last_page(scene: Scene, dsn: str) -> None:
    order_ids = [f"order-{number:04}" for number in range(1200)]
    async with connected(dsn) as sql:
        await sql.execute(f"WITH ids AS (SELECT unnest($1::text[]) AS id) {INSERT_ORDERS}", order_ids)
    backends = Backends.of(scene.settings())
    first_page = asyncio.Event()

    def note(progress: JobProgress) -> None:
        if progress.done:
            first_page.set()

    async with opened(backends) as parts:
        selection = OrderFilter(prefix="order-")
        request = order_request(JobKind.ENQUEUE, selection, rate=500.0)
        held = await operations.start(parts.jobs, request, "cli:me", "one")
        running = JobRun(held, parts, on_progress=note)
        task = asyncio.create_task(running.run())
        await first_page.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await parts.jobs.record(held, running.progress)
        await parts.jobs.release(held)

        resumed = await parts.jobs.take(held.id, "two")
        assert resumed is not None
        assert await JobRun(resumed, parts).run() is JobState.DONE

        ended = await parts.jobs.get(held.id)
    assert ended is not None
    assert (ended.progress.done, ended.progress.examined) == (1200, 1200)
    queued = [fields[b"order_id"].decode() for _, fields in await scene.redis.xrange(scene.keys.stream)]
    assert queued == order_ids


class EndsAfterPart(JobOutput):
    """The process ends when the orders are recorded and not yet enqueued."""

    async def add_orders(self, held: Job, part: int, orders: Sequence[OrderPosition], progress: JobProgress) -> None:
        await super().add_orders(held, part, orders, progress)
        raise asyncio.CancelledError


async def test_a_job_counts_the_rows_that_have_changed_since_it_has_enqueued_their_orders(scene: Scene) -> None:
    """Although its process has ended, and although orders are enqueued and fetched several times."""
    for order_id in WRONG:
        scene.api.put_order(order_id, document(order_id, updated_at="2026-01-02T03:04:05Z"))
    await scene.enqueue(*WRONG)
    async with scene.worker():
        await scene.finished()
    await scene.sql("UPDATE orders SET status = 'wrong' WHERE order_id < 'wrong-020'")
    scene.api.delete_order(WRONG[0])
    backends, wrong = Backends.of(scene.settings()), OrderFilter(prefix="wrong-")

    async with opened(backends) as parts, Pool.open(scene.dsn, size=1) as pool:
        held = await operations.start(parts.jobs, order_request(JobKind.ENQUEUE, wrong, rate=10.0), "cli:me", "one")
        dying = replace(parts, output=EndsAfterPart(pool))
        with pytest.raises(asyncio.CancelledError):
            await JobRun(held, dying).run()
        before = await parts.output.refetched(held.id)
        await parts.jobs.release(held)
        resumed = await parts.jobs.take(held.id, "two")
        assert resumed is not None
        assert await JobRun(resumed, parts).run() is JobState.DONE
        enqueued = await parts.output.refetched(held.id)
    async with scene.worker():
        await scene.finished()
        await scene.enqueue(*WRONG[10:])
        await scene.finished()
    async with running_api(scene.redis_url, scene.dsn, scene.queue) as api:
        _, shown = await api.get(f"/v1/jobs/{held.id}")
        async with api.http.get(f"{api.url}/console/jobs/show", params={"id": held.id}) as response:
            page = await response.text()

    assert before == RefetchedRows(0, 0, 0, 10)
    assert enqueued == RefetchedRows(0, 0, 0, 30)
    assert (shown["state"], shown["done"]) == ("done", 30)
    assert shown["rows"] == {"fetched": 29, "changed": 19, "unchanged": 10, "unfetched": 1}
    assert "<dt>Rows changed</dt><dd>19</dd>" in page


async def test_orders_are_remapped_by_a_job_over_http(scene: Scene) -> None:
    for order_id in ("a", "b", "c"):
        await scene.add(order_id=order_id, document=document(order_id))
    async with scene.worker(keep_document="on"):
        await scene.finished()
    await scene.sql("UPDATE orders SET status = 'wrong' WHERE order_id <> 'c'")

    async with running_api(scene.redis_url, scene.dsn, scene.queue, Key("shop")) as api:
        body = {"kind": "orders.remap", "orders": {"status": "wrong"}}
        status, added = await api.post("/v1/jobs", json=body)
        nothing, _ = await api.post("/v1/jobs", json={"kind": "orders.remap", "orders": {}})
        entries = {"kind": "orders.remap", "selection": {"everything": True}}
        mixed, _ = await api.post("/v1/jobs", json=entries)

        async def done() -> bool:
            _, found = await api.get(f"/v1/jobs/{added['id']}")
            return bool(found["state"] == "done" and found["done"] == 2)

        async with scene.worker(keep_document="on"):
            await eventually(done, within=30)

    assert (status, nothing, mixed) == (202, 422, 422)
    assert {row["status"] for row in (await scene.rows()).values()} == {"placed"}
