"""A backfill in this process, on real servers and a list of the test: failures of the list, outages, and a lost lease."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from http_api import queued
from integration.scene import GROUP, Scene
from support import eventually

from ingest.domain.deliveries.accepted import Durability
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import (
    CredentialFault,
    Fault,
    ListFault,
    PermanentFault,
    QueueUnavailable,
    ThrottledFault,
    TransientFault,
)
from ingest.domain.fetch.list_places import ListPlace
from ingest.domain.fetch.listed import ListedOrder, ListedPage, ListShape, PageRequest
from ingest.domain.operating.backfill import BackfillProgress, BackfillRequest
from ingest.domain.operating.jobs import Job, JobKind, JobState
from ingest.lab.servers import EmbeddedServers
from ingest.operations.backends import Backends
from ingest.operations.backfill.changes import Listing
from ingest.operations.backfill.lane import open_main_lane
from ingest.operations.jobs.run import JobParts, JobRun
from ingest.queue.redis.connection import control_client
from ingest.services.jobs.job_runs import JobRuns
from ingest.services.jobs.job_search import JobSearch
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs, LeaseLost

NOW = datetime(2026, 11, 1, tzinfo=UTC)
REQUEST = BackfillRequest(NOW - timedelta(days=30), NOW)
DRY_RUN = BackfillRequest(NOW - timedelta(days=30), NOW, dry_run=True)


class Listed:
    """A list of pages of three orders, which first fails as configured.

    Attributes:
        faults: for the next requests.
        requested: the cursors so far.
    """

    def __init__(self, pages: int, faults: Sequence[Fault] = ()) -> None:
        self.faults = list(faults)
        self.requested: list[str | None] = []
        self.before_page: Callable[[int], Any] = lambda _: None
        self._pages = pages

    shape = ListShape(has_times=True)

    async def page(self, request: PageRequest) -> ListedPage:
        assert (request.since, request.until) == (REQUEST.since, REQUEST.until)
        cursor = request.cursor
        self.requested.append(cursor)
        if self.faults:
            raise self.faults.pop(0)
        number = int(cursor or 0)
        await asyncio.sleep(0)
        if (waiting := self.before_page(number)) is not None:
            await waiting
        orders = [ListedOrder(f"{number}-{index}", NOW - timedelta(days=number)) for index in range(3)]
        # One order is outside of the period.
        orders.append(ListedOrder(f"old-{number}", NOW - timedelta(days=31)))
        return ListedPage(orders, len(orders), str(number + 1) if number + 1 < self._pages else None)


class Forgetful(Listed):
    """A list that does not accept the cursor of its third page from an earlier reading."""

    async def page(self, request: PageRequest) -> ListedPage:
        if request.cursor == "2" and "1" not in self.requested:
            raise PermanentFault(DeadReason.REJECTED, "HTTP 400")
        return await super().page(request)


class Site:
    """The backfills and the lane of one scene."""

    def __init__(self, scene: Scene, pool: Pool, client: Any) -> None:
        self.scene = scene
        self.jobs = Jobs(pool)
        self._pool = pool
        self._client = client

    @classmethod
    @asynccontextmanager
    async def open(cls, scene: Scene) -> AsyncIterator["Site"]:
        async with Pool.open(scene.dsn) as pool, control_client(scene.redis_url) as client:
            yield cls(scene, pool, client)

    def parts(self, listed: Listed) -> JobParts:
        servers = Backends(self.scene.redis_url, self.scene.dsn, self.scene.queue, GROUP)
        listing = Listing(listed, self._pool, first_pause=0.01)
        return JobParts(self._client, servers, self.jobs, JobOutput(self._pool), listing=listing)

    async def run(
        self, listed: Listed, problems: list[str] | None = None, *, request: BackfillRequest = REQUEST
    ) -> JobState:
        """Start or continue the backfill, while workers finish whatever is queued."""
        job = await self.jobs.unfinished_backfill() or await self.jobs.add(request.as_job(), "cli:me")
        assert job is not None
        held = await self.jobs.take(job.id, "here")
        assert held is not None
        on_wait = (lambda _: None) if problems is None else problems.append
        return await JobRun(held, self.parts(listed), on_wait=on_wait).run()

    @asynccontextmanager
    async def running(self, listed: Listed) -> AsyncIterator[None]:
        """Run waiting backfills as a worker does."""
        kinds = [JobKind.BACKFILL]
        search = JobSearch(self._pool, kinds)
        runs = JobRuns(self._pool, [""], kinds, "here", search, lambda _: self.parts(listed))
        tasks = [asyncio.create_task(each.run()) for each in (search, runs)]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def newest(self) -> Job:
        [job] = await self.jobs.newest(1)
        return job

    async def progress(self) -> BackfillProgress:
        return BackfillProgress.of((await self.newest()).progress)

    async def begun(self, request: BackfillRequest) -> None:
        """Leave a backfill behind that has read two pages."""
        held = await self.jobs.add(request.as_job(), "cli:me", "before")
        assert held is not None
        progress = BackfillProgress(place("2"), 6, 6, 0).as_job(dry_run=request.dry_run)
        await self.jobs.record(held, progress)
        await self.jobs.release(held)

    async def enqueued(self) -> list[str]:
        return [fields[b"order_id"].decode() for fields in await queued(self.scene.redis, self.scene.queue)]


@pytest.fixture
async def site(scene: Scene) -> AsyncIterator[Site]:
    async with Site.open(scene) as site:
        yield site


def place(cursor: str) -> str:
    return ListPlace(REQUEST.since, cursor).as_text()


def ids(*pages: int) -> list[str]:
    return [f"{page}-{index}" for page in pages for index in range(3)]


async def test_transient_failures_and_throttling_of_the_list_are_waited_for(site: Site) -> None:
    problems: list[str] = []
    faults = [TransientFault("HTTP 503"), TransientFault("HTTP 503"), ThrottledFault("HTTP 429", 0.05)]

    state = await site.run(Listed(3, faults * 3), problems)

    assert state is JobState.DONE
    assert problems[:2] == ["HTTP 503", "HTTP 429"]
    assert await site.enqueued() == ids(0, 1, 2)


@pytest.mark.parametrize("fault", [CredentialFault("HTTP 401"), ListFault("no array of orders")])
async def test_a_list_that_stays_rejected_fails_the_job_which_continues_after_a_repair(
    site: Site, fault: Fault
) -> None:
    listed = Listed(3)

    def fail(number: int) -> None:
        if number == 2:
            listed.faults = [fault] * 4
            raise fault

    listed.before_page = fail
    failed = await site.run(listed)
    recorded, progress = await site.newest(), await site.progress()
    await site.jobs.reopen(recorded.id)
    repaired = Listed(3)
    done = await site.run(repaired)

    assert (failed, recorded.state, recorded.error) == (JobState.FAILED, JobState.FAILED, str(fault))
    assert (progress.listed, progress.next_page) == (6, place("2"))
    assert (done, repaired.requested) == (JobState.DONE, ["2"])
    assert await site.enqueued() == ids(0, 1, 2)


async def test_a_cursor_that_the_shop_does_not_accept_any_more_lets_the_list_be_read_again(site: Site) -> None:
    await site.begun(REQUEST)
    listed = Forgetful(3)

    state = await site.run(listed)

    assert (state, listed.requested) == (JobState.DONE, [None, "1", "2"])
    assert await site.progress() == BackfillProgress(None, 9, 15, 0)
    assert await site.enqueued() == ids(0, 1, 2)


async def test_a_dry_run_counts_without_enqueueing(site: Site) -> None:
    state = await site.run(Listed(5), request=DRY_RUN)

    assert (state, await site.progress()) == (JobState.DONE, BackfillProgress(None, 15, 15, 0))
    assert (await site.newest()).progress.done == 0
    assert await site.enqueued() == []


async def test_a_dry_run_counts_each_order_once_after_its_cursor_is_not_accepted_any_more(site: Site) -> None:
    await site.begun(DRY_RUN)

    await site.run(Forgetful(3))

    assert await site.progress() == BackfillProgress(None, 9, 9, 0)


async def test_pages_that_repeat_fail_the_job(site: Site) -> None:
    class Repeating(Listed):
        async def page(self, request: PageRequest) -> ListedPage:
            page = await super().page(request)
            return ListedPage(page.orders, page.count, "1")

    state = await site.run(Repeating(9))

    assert state is JobState.FAILED
    assert (await site.newest()).error == "the pages of the list repeat"


@pytest.mark.parametrize("until", [None, NOW + timedelta(days=1)])
async def test_a_backfill_without_an_end_in_the_past_ends_now_by_the_clock_of_the_shop(
    site: Site, until: datetime | None
) -> None:
    class Ahead(Listed):
        """A list of a shop that considers the host to be ten minutes behind."""

        async def page(self, request: PageRequest) -> ListedPage:
            assert request.until is None
            return ListedPage(
                [ListedOrder("recent", NOW + timedelta(minutes=9))], 1, sent_at=NOW + timedelta(minutes=10)
            )

    state = await site.run(Ahead(1), request=BackfillRequest.within(REQUEST.since, until, NOW))

    assert (state, await site.enqueued()) == (JobState.DONE, ["recent"])


async def test_a_cancelled_job_enqueues_nothing_after_the_page(site: Site) -> None:
    listed = Listed(5)

    async def cancel() -> None:
        await site.jobs.cancel((await site.newest()).id)

    listed.before_page = lambda number: cancel() if number == 2 else None

    with pytest.raises(LeaseLost):
        await site.run(listed)

    assert await site.enqueued() == ids(0, 1, 2)
    assert (await site.progress()).listed == 6


async def test_without_workers_a_backfill_stops_at_ten_orders(site: Site) -> None:
    running = asyncio.create_task(site.run(Listed(50)))

    async def is_full() -> bool:
        return len(await site.enqueued()) >= 10

    await eventually(is_full)
    await asyncio.sleep(1.0)
    running.cancel()
    await asyncio.wait([running])

    assert len(await site.enqueued()) == 10


@pytest.mark.parametrize("server", ["valkey", "postgres"])
async def test_a_backfill_waits_for_a_server_and_leaves_no_order_out(
    fragile: Scene, own_servers: EmbeddedServers, server: str
) -> None:
    stopped = getattr(own_servers, server)
    problems: list[str] = []
    listed = Listed(3)

    async def stop() -> None:
        await asyncio.to_thread(stopped.stop)

    listed.before_page = lambda number: stop() if number == 1 else None
    async with Site.open(fragile) as site:
        running = asyncio.create_task(site.run(listed, problems))
        await eventually(lambda: any("is unavailable" in problem for problem in problems))
        await asyncio.to_thread(stopped.start)
        state = await running

        assert state is JobState.DONE
        assert set(await site.enqueued()) == set(ids(0, 1, 2))


async def test_orders_are_enqueued_as_durably_as_configured(scene: Scene) -> None:
    servers = Backends(scene.redis_url, scene.dsn, scene.queue, GROUP, durability=Durability.REPLICATED)

    async with open_main_lane(servers, "backfill") as lane:
        with pytest.raises(QueueUnavailable):
            await lane.enqueue([ListedOrder("1")])


async def test_a_bug_fails_its_backfill_and_the_process_runs_the_next_one(site: Site) -> None:
    listed = Listed(2)

    def break_once(_: int) -> None:
        listed.before_page = lambda _: None
        raise ZeroDivisionError

    async def ended() -> bool:
        return await site.jobs.unfinished_backfill() is None

    listed.before_page = break_once
    await site.jobs.add(REQUEST.as_job(), "cli:me")
    async with site.running(listed):
        await eventually(ended)
        await site.jobs.add(REQUEST.as_job(), "cli:me")
        await eventually(ended)

    states = [(each.state, each.error) for each in await site.jobs.newest(2)]
    assert states == [(JobState.DONE, None), (JobState.FAILED, "a bug: ZeroDivisionError")]


async def test_a_process_that_stops_lets_another_one_continue_at_once(site: Site) -> None:
    await site.jobs.add(REQUEST.as_job(), "cli:me")

    async def has_progress() -> bool:
        return (await site.progress()).listed >= 3

    async with site.running(Listed(50)):
        await eventually(has_progress)
    after = await site.newest()
    heir = await site.jobs.take(after.id, "there")

    assert heir is not None
    assert (after.state, heir.lease, heir.progress) == (JobState.WAITING, 2, after.progress)
