"""Exports of dead letters as jobs: each dead letter once, also after an interruption."""

import csv
import io
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from integration.job_bench import Bench, interrupted_run

from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.selection import InvalidSelection, Selection
from ingest.domain.errors import StoreUnavailable
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.operations import jobs as operations
from ingest.operations.jobs.run import JobRun
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.store.job_output import JobOutput, delete_expired_output


@pytest.fixture
async def bench(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Bench]:
    async with Bench.open(redis_url, dsn, queue_name) as bench:
        yield bench


@pytest.mark.parametrize("file_format", ["jsonl", "csv"])
async def test_an_export_covers_all_partitions_and_what_matched_when_it_was_requested(
    bench: Bench, queue_name: str, file_format: str
) -> None:
    layout = await LayoutRecord(bench.client, queue_name, 3).recent()
    parts = [Keys.of(queue) for queue in layout.queues]
    for number, keys in enumerate(parts):
        await bench.add(70, keys, first=1_000 * number, error="HTTP 422: order 7 is unknown")
        await bench.add(5, keys, first=1_000 * number + 500)
    selection = Selection(filter=EntryFilter(shape="HTTP 422: order 9 is unknown"))
    job = await bench.start(JobKind.EXPORT, file_format=file_format, selection=selection)
    await bench.add(5, parts[0], first=9_000, error="HTTP 422: order 7 is unknown")

    assert await JobRun(job, bench.parts).run() is JobState.DONE

    ids = {f"o{1_000 * part + number}" for part in range(3) for number in range(70)}
    assert Counter(await _exported(bench, job)) == Counter(ids)
    ended = await bench.ended(job)
    assert (ended.progress.done, ended.progress.examined) == (210, 225)
    assert (await bench.audited())[-1] == ("done", "me", "dead_letters.export", 210)


async def test_an_export_that_is_interrupted_again_and_again_contains_each_dead_letter_once(bench: Bench) -> None:
    # A page of them is a part.
    await bench.add(800, document="x" * 4_000)
    job = await bench.start(JobKind.EXPORT, file_format="csv")

    for interrupted in range(1, 4):
        await interrupted_run(job, bench, steps=1)
        await bench.parts.jobs.release(job)
        # One more is gone each time before another process continues.
        await bench.dead_letters.change(JobKind.DROP, Selection(ids=frozenset({f"o{800 - interrupted}"})))
        taken = await bench.parts.jobs.take(job.id, f"another-{interrupted}")
        assert taken is not None
        job = taken
    assert await JobRun(job, bench.parts).run() is JobState.DONE

    assert await _exported(bench, job) == [f"o{number}" for number in range(797)]
    assert (await bench.ended(job)).progress.done == 797


async def test_an_export_whose_parts_were_deleted_before_it_is_resumed_begins_again(bench: Bench) -> None:
    await bench.add(500, document="x" * 4_000)
    job = await bench.start(JobKind.EXPORT)
    await interrupted_run(job, bench, steps=2)
    await bench.parts.jobs.record(job, JobProgress(400, 0, 400, per_second=9.0))
    await operations.cancel(bench.parts.jobs, job, "me")
    await bench.pool.fetch("UPDATE jobs SET ended_at = ended_at - interval '8 days'")

    await delete_expired_output(bench.pool)
    resumed = await operations.resume(bench.parts.jobs, await bench.ended(job), "me", "two")
    rates: list[float] = []
    await JobRun(resumed, bench.parts, on_progress=lambda progress: rates.append(progress.per_second)).run()

    assert await _exported(bench, job) == [f"o{number}" for number in range(500)]
    assert (await bench.ended(job)).progress.done == 500
    assert min(rates) == 0


async def test_an_export_of_nothing_is_an_empty_file(bench: Bench) -> None:
    for file_format, text in (("jsonl", b""), ("csv", b"id,source,order_id,")):
        job = await bench.start(JobKind.EXPORT, file_format=file_format)

        await JobRun(job, bench.parts).run()

        [written] = [part async for part in bench.parts.output.texts(job.id)]
        assert written.startswith(text)
        assert written.count(b"\n") == (file_format == "csv")


async def test_an_export_waits_for_postgresql_with_what_it_has_read(bench: Bench) -> None:
    await bench.add(30)
    job = await bench.start(JobKind.EXPORT)
    reasons: list[str] = []
    parts = replace(bench.parts, output=_OnceUnavailable(bench.pool))

    assert await JobRun(job, parts, on_wait=reasons.append).run() is JobState.DONE

    assert await _exported(bench, job) == [f"o{number}" for number in range(30)]
    assert reasons == ["PostgreSQL is unavailable: connection refused"]


async def test_an_export_with_a_rate_takes_its_time(bench: Bench) -> None:
    await bench.add(30)
    job = await bench.start(JobKind.EXPORT, rate=20)
    seen: list[int] = []
    begun = time.monotonic()

    await JobRun(job, bench.parts, on_progress=lambda progress: seen.append(progress.done)).run()

    assert time.monotonic() - begun >= 1.4
    assert seen == [0, 20, 30]


async def test_an_export_of_single_dead_letters_is_no_job(bench: Bench) -> None:
    with pytest.raises(InvalidSelection, match="IDs"):
        await bench.start(JobKind.EXPORT, file_format="csv", selection=Selection(ids=frozenset({"o1"})))


class _OnceUnavailable(JobOutput):
    """Files of which a part is written, but the response is lost."""

    has_failed = False

    async def add(self, held: Job, part: int, text: str, progress: JobProgress) -> None:
        await super().add(held, part, text, progress)
        if not self.has_failed:
            self.has_failed = True
            raise StoreUnavailable("connection refused")


async def _exported(bench: Bench, job: Job) -> list[str]:
    """The IDs of the orders in the file of a job."""
    text = b"".join([part async for part in bench.parts.output.texts(job.id)]).decode()
    if job.request.selection["format"] == "csv":
        return [row["order_id"] for row in csv.DictReader(io.StringIO(text))]
    return [json.loads(line)["order_id"] for line in text.splitlines()]
