"""Jobs that change dead letters and retries: only the selected ones, each once, also after an interruption."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from integration.job_bench import EVERYTHING, Bench, interrupted_run

from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable, StoreUnavailable
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobState
from ingest.operations import jobs as operations
from ingest.operations.failed_orders.entries import DeadLetterEntries
from ingest.operations.failed_orders.group_surveys import GroupSurveys, group
from ingest.operations.jobs.run import JobRun
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.operate.queue_parts import Reached, layout_reader
from ingest.queue.operate.repeated_calls import refuse_to_wait
from ingest.queue.partitions.layout_record import LayoutRecord
from ingest.store.jobs import Jobs, LeaseLost


@pytest.fixture
async def bench(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Bench]:
    async with Bench.open(redis_url, dsn, queue_name) as bench:
        yield bench


async def test_a_replay_moves_the_selected_dead_letters_that_exist_when_it_is_requested(bench: Bench) -> None:
    await bench.add(300, error="HTTP 422: order 7 is unknown", reason="rejected", origin="api")
    await bench.add(20, first=300, error="HTTP 422: order 8 is unknown", reason="rejected", origin="webhook:a")
    await bench.add(30, first=400, error="HTTP 404")
    chosen = EntryFilter("UNKNOWN", "HTTP 422: order 9 is unknown", {"origin": "api"})
    job = await bench.start(JobKind.REPLAY, Selection(reasons=frozenset({"rejected"}), filter=chosen))
    await bench.add(5, first=500, error="HTTP 422: order 7 is unknown", reason="rejected", origin="api")

    assert await JobRun(job, bench.parts).run() is JobState.DONE

    assert await bench.replayed() == Counter(f"o{number}" for number in range(300))
    ended = await bench.ended(job)
    assert (ended.state, ended.progress.done, ended.progress.gone, ended.progress.examined) == (
        JobState.DONE,
        300,
        0,
        350,
    )
    assert await bench.client.xlen(bench.keys.dead) == 55
    assert await bench.client.pttl(f"{bench.keys.records}job:{job.id}") <= 1_000
    assert await bench.audited() == [
        ("begun", "me", "dead_letters.replay", None),
        ("done", "me", "dead_letters.replay", 300),
    ]


async def test_a_job_that_is_interrupted_after_any_step_is_resumed_without_doubling_or_miscounting(
    bench: Bench,
) -> None:
    await bench.add(1_000)
    job = await bench.start(JobKind.REPLAY)

    for interrupted in range(1, 6):
        await interrupted_run(job, bench, steps=interrupted)
        # What another process would find, including a position that is older than the last step.
        await bench.parts.jobs.release(job)
        taken = await bench.parts.jobs.take(job.id, f"another-{interrupted}")
        assert taken is not None
        job = taken
    assert await JobRun(job, bench.parts).run() is JobState.DONE

    assert await bench.replayed() == Counter(f"o{number}" for number in range(1_000))
    assert (await bench.ended(job)).progress.done == 1_000
    assert (await bench.ended(job)).progress.gone == 0


class _Unrecorded(Jobs):
    """Jobs whose progress cannot be recorded."""

    async def record(self, held: Job, progress: JobProgress) -> None:
        del held, progress
        raise StoreUnavailable("connection refused")


async def test_a_job_continues_without_postgresql_and_reports_that_once(bench: Bench) -> None:
    await bench.add(30)
    job = await bench.start(JobKind.REPLAY, rate=10)
    parts = replace(bench.parts, jobs=_Unrecorded(bench.pool))
    reasons: list[str] = []

    assert await JobRun(job, parts, on_wait=reasons.append).run() is JobState.DONE

    assert len(await bench.replayed()) == 30
    assert len(reasons) == 1


async def test_dead_letters_are_dropped_and_what_another_operator_moved_counts_as_gone(bench: Bench) -> None:
    await bench.add(120)
    job = await bench.start(JobKind.DROP)
    other = asyncio.Event()

    async def drop_some() -> None:
        await other.wait()
        await bench.dead_letters.change(JobKind.DROP, Selection(ids=frozenset({"o100", "o101"})))

    def note(progress: JobProgress) -> None:
        # After the first step, the job has read the entries of all steps.
        if progress.done:
            other.set()

    racing = asyncio.create_task(drop_some())
    await JobRun(job, bench.parts, on_progress=note).run()
    await racing

    assert await bench.client.xlen(bench.keys.dead) == 0
    progress = (await bench.ended(job)).progress
    # The job may come first, or read the dead letters before or after the other operator drops them.
    assert progress.done >= 118
    assert progress.done + progress.gone in range(118, 121)


async def test_retries_are_run_now_once_each_also_when_they_fail_again_meanwhile(bench: Bench) -> None:
    await bench.add_retries(230)
    job = await bench.start(JobKind.RUN_NOW, Selection(filter=EntryFilter(shape="HTTP 503")))
    # An order whose attempt has failed again waits in a new entry, later than all.
    again = f"{job.request.selection['until_ms'][bench.parts.servers.stream] + 1}-0"
    about = ["order_id", "o1", "retry_reason", "http_status", "retry_error", "HTTP 503", "attempt", "3"]
    await bench.client.hset(bench.keys.retry_entries, again, msgspec.msgpack.encode(about))
    await bench.client.zadd(bench.keys.retry, {again: 5_000_000_000_000})

    await interrupted_run(job, bench, steps=2)
    assert await JobRun(job, bench.parts).run() is JobState.DONE

    due = dict(await bench.client.zrange(bench.keys.retry, 0, -1, withscores=True))
    assert due.pop(again.encode()) == 5_000_000_000_000
    assert all(score < 4_000_000_000_000 for score in due.values())
    assert (await bench.ended(job)).progress.done == 230


async def test_retries_are_dead_lettered_by_who_requested_it(bench: Bench) -> None:
    await bench.add_retries(120)
    job = await bench.start(JobKind.DEAD_LETTER)

    await JobRun(job, bench.parts).run()

    assert await bench.client.zcard(bench.keys.retry) == 0
    dead = [fields for _, fields in await bench.client.xrange(bench.keys.dead)]
    assert Counter(each[b"order_id"] for each in dead) == Counter(b"o%d" % number for number in range(120))
    assert {each[b"worker"] for each in dead} == {b"me"}


async def test_a_job_covers_all_partitions(bench: Bench, queue_name: str) -> None:
    layout = await LayoutRecord(bench.client, queue_name, 3).recent()
    parts = [Keys.of(queue) for queue in layout.queues]
    for number, keys in enumerate(parts):
        await bench.add(70, keys, first=1_000 * number)
    job = await bench.start(JobKind.REPLAY)

    await interrupted_run(job, bench, steps=3)
    await JobRun(job, bench.parts).run()

    assert sum((await bench.replayed(*parts)).values()) == 210
    assert max((await bench.replayed(*parts)).values()) == 1
    assert (await bench.ended(job)).progress.done == 210


async def test_a_cancelled_job_stops_and_is_resumed_where_it_has_ended(bench: Bench) -> None:
    await bench.add(100)
    job = await bench.start(JobKind.REPLAY, rate=20.0)
    begun = asyncio.Event()
    running = asyncio.create_task(JobRun(job, bench.parts, on_progress=lambda _: begun.set()).run())
    await begun.wait()

    await operations.cancel(bench.parts.jobs, job, "other")
    with pytest.raises(LeaseLost):
        await asyncio.wait_for(running, 30)

    left = await bench.client.xlen(bench.keys.dead)
    assert left > 0
    cancelled = await bench.ended(job)
    with pytest.raises(operations.ImpossibleChange, match="cancelled"):
        await operations.cancel(bench.parts.jobs, cancelled, "other")
    resumed = await operations.resume(bench.parts.jobs, cancelled, "me", "two")
    resumed = msgspec.structs.replace(resumed, request=msgspec.structs.replace(resumed.request, rate=None))
    assert await JobRun(resumed, bench.parts).run() is JobState.DONE
    assert sum((await bench.replayed()).values()) == 100
    assert (await bench.ended(job)).progress.done == 100


async def test_groups_count_by_reason_and_shape(bench: Bench) -> None:
    await bench.add(40, error="currency missing at $.total_price_set", reason="invalid_order")
    await bench.add(30, first=40, error="value 1 out of range at $.lines[1].price", reason="unstorable")
    await bench.add(1, first=70, error="value 22 out of range at $.lines[22].price", reason="unstorable")
    await bench.add_retries(3, error="HTTP 503")

    dead = await group([bench.parts.servers], EntryKind.DEAD_LETTERS, EVERYTHING)
    retries = await group([bench.parts.servers], EntryKind.RETRIES, EVERYTHING)

    assert [(group.count, group.reason, group.shape) for group in dead.groups] == [
        (40, "invalid_order", "currency missing at $.total_price_set"),
        (31, "unstorable", "value N out of range at $.lines[].price"),
    ]
    assert (dead.examined, dead.total, dead.groups[1].order_ids) == (71, 71, ["o40", "o41", "o42"])
    assert [(group.count, group.reason, group.shape) for group in retries.groups] == [(3, "http_status", "HTTP 503")]


async def test_a_survey_of_groups_follows_what_is_added_and_removed(bench: Bench) -> None:
    clock = _Clock()
    await bench.add(700)

    async with GroupSurveys({"": bench.entries}, clock) as surveys:

        async def count() -> Mapping[str, int]:
            clock.now += 100
            found = await surveys.of(EntryKind.DEAD_LETTERS, [""], wait=30)
            assert found.is_complete
            return {group.reason: group.count for group in found.groups}

        assert await count() == {"not_found": 700}
        await bench.add(5, first=700, reason="rejected")
        assert await count() == {"not_found": 700, "rejected": 5}
        await bench.dead_letters.change(JobKind.DROP, Selection(reasons=frozenset({"not_found"})))
        assert await count() == {"rejected": 5}
        assert (await surveys.of(EntryKind.RETRIES, [""], wait=30)).groups == []


async def test_a_survey_that_takes_long_shows_how_far_it_is(bench: Bench) -> None:
    await bench.add(5_000)

    async with GroupSurveys({"": bench.entries}) as surveys:
        first = await surveys.of(EntryKind.DEAD_LETTERS, [""], wait=0.02)
        while not (last := await surveys.of(EntryKind.DEAD_LETTERS, [""], wait=0.1)).is_complete:
            assert last.total == 5_000

    assert first.total in {0, 5_000}
    assert first.examined < 5_000
    assert [group.count for group in last.groups] == [5_000]


async def test_groups_stay_with_their_age_when_a_survey_fails(bench: Bench) -> None:
    clock = _Clock()
    await bench.add(3)
    dead_letters = _CutOff(
        bench.client, layout_reader(bench.client, bench.parts.servers.stream), on_wait=refuse_to_wait
    )

    async with GroupSurveys({"": {EntryKind.DEAD_LETTERS: DeadLetterEntries(dead_letters)}}, clock) as surveys:
        dead_letters.is_cut_off = True
        with pytest.raises(QueueUnavailable):
            await surveys.of(EntryKind.DEAD_LETTERS, [""], wait=30)
        dead_letters.is_cut_off = False
        clock.now += 2
        complete = await surveys.of(EntryKind.DEAD_LETTERS, [""], wait=30)
        dead_letters.is_cut_off = True
        clock.now += 60
        old = await surveys.of(EntryKind.DEAD_LETTERS, [""], wait=30)
        dead_letters.is_cut_off = False
        clock.now += 2
        new = await surveys.of(EntryKind.DEAD_LETTERS, [""], wait=30)

    assert [(each.age, each.problem) for each in (complete, old, new)] == [(0, ""), (60, "cut off"), (0, "")]
    assert [group.count for group in old.groups] == [3]
    assert old.is_complete


class _CutOff(DeadLetters):
    is_cut_off = False

    async def reached(
        self, call: Callable[[PartitionDeadLetters], Awaitable[Any]]
    ) -> Reached[PartitionDeadLetters, Any]:
        if self.is_cut_off:
            raise QueueUnavailable("cut off")
        return await super().reached(call)


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now
