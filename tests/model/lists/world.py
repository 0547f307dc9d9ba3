"""A simulated shop, the real reader of its list, and the real operations, over a store, a queue and positions in memory."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, Literal, cast

import msgspec
from fakes.listed_orders import MemoryJobs, MemoryOrders, MemoryPolls, MemoryQueue, MemoryRow
from fakes.shop_transport import ShopTransport
from model.lists.shapes import SHAPES, URL, options_of
from model.lists.story import Story, defaults

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.errors import Fault, TransientFault
from ingest.domain.fetch import division
from ingest.domain.fetch.listed import OrderList
from ingest.domain.operating.backfill import BackfillRequest
from ingest.domain.operating.jobs import Job, JobState
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.operations import list_pages
from ingest.operations.backfill.changes import Listing as BackfilledList
from ingest.operations.jobs.run import JobParts, JobRun
from ingest.operations.poll.look import Look
from ingest.operations.poll.turns import PollPlan, Turns
from ingest.operations.reconcile.list_ledger import ListLedger
from ingest.operations.reconcile.listed import Listing, Progress, reconcile_list
from ingest.operations.reconcile.scan import Places
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.access.endpoint import HEADERS, Endpoint, FixedCredential
from ingest.upstream.lists.order_list import ListOptions
from ingest.upstream.session import ApiSession

BEGINNING = datetime(2026, 11, 2, 9, 30, tzinfo=UTC)
EARLIEST = BEGINNING - timedelta(days=60)
# Longer than all pauses of a reading that only waits.
_LONGEST = 3600.0
# A list with numbers is read in up to four passes. Before each page, a time may be tried in vain.
_MOST_PER_ORDER = 5
_METRICS = WorkerMetrics.on(worker_shared_metrics(1), 0)

Verdict = Literal["clean", "reported", "failed"]
"""An operation claims that all is read and compared, names what it could not read, or fails and will be repeated."""

MakeList = Callable[[ApiSession, ListOptions], OrderList]


class Endless(Exception):
    """A reading sends far more requests than the list has pages."""


@cache
def _most_while_down() -> int:
    """Return the most requests of a reading that waits all the time, with those for the parts of a page that fails again and again."""
    pause_after, waited, tries = list_pages.persistently(), 0.0, 0
    while waited <= _LONGEST:
        tries += 1
        waited += pause_after(TransientFault("down"), tries) or 0.0
    divisions = 1 + (tries - list_pages._FAILURES) // list_pages._FURTHER_FAILURES
    return tries + divisions * division._MOST_FAILURES


class World:
    """Everything of one story.

    Args:
        story: to play.
        make_list: makes the reader of the list.

    Attributes:
        log: what was done, for a failing story.
        backfill_from: beginning of the last backfill.
        complete_from: polls and a backfill are responsible for all later changes.
        has_doubts: whether a poll has reported that orders may be missing, without their places.
        is_broken: whether a poll has reported an element that breaks its page.
    """

    def __init__(self, story: Story, make_list: MakeList) -> None:
        self.story = story
        self._loop = asyncio.get_running_loop()
        self._started_at = self._loop.time()
        self._random = Random(story.seed)
        self._shape = shape = SHAPES[story.shape]
        limits: dict[str, object] = {"rate_limit": 1e6, "rate_burst": 1_000_000, "list_lag": 0.0}
        modes = {name: value for name, value in story.modes.items() if name != "breaking_id"}
        self.shop = SimulatedShop(
            shape.kind, orders=story.orders, changes={**limits, **modes}, seed=story.seed, clock=self.now
        )
        self.shop.site.behave(**self._named(story.faults | story.modes))
        options = options_of(story.shape, story.size, story.overlap, str(story.modes.get("time_format", "")))
        self._declared = options.declared
        self._transport = ShopTransport(self.shop)
        self._transport.before = self._before_request
        headers = dict(shape.headers)
        if shape.kind == "amazon":
            headers["x-amz-access-token"] = self.shop.site.issue_token("Atza|")
        session = ApiSession(
            cast("Any", self._transport),
            Endpoint(URL, method=self._declared.method or ("GET" if self._declared.body is None else "POST")),
            1 << 25,
            _METRICS.upstream_request,
            credential=FixedCredential(lambda: {**HEADERS, **headers, "Content-Type": "application/json"}),
            now=self.now,
        )
        self._list = make_list(session, options)
        self.orders, self.queue, self.polls = MemoryOrders(), MemoryQueue(self.now), MemoryPolls()
        if story.is_stored:
            for order in self.shop.state.all_orders():
                self._store(order, BEGINNING)
        self.log: list[str] = []
        self.backfill_from = BEGINNING
        self.complete_from = EARLIEST if story.is_stored else BEGINNING
        self.has_doubts = self.is_broken = False
        self._backfill: MemoryJobs | None = None
        self._most_requests, self._changes_left, self._is_endless, self._is_calm = 0, 0, False, False

    def now(self) -> datetime:
        """The time by every clock."""
        return BEGINNING + timedelta(seconds=self._loop.time() - self._started_at)

    # -- steps --------------------------------------------------------------------------------------------------------

    async def poll(self, within: float = _LONGEST) -> Verdict:
        """Read the list for changes, as `ingest poll` does, for at most so many seconds."""
        look = Look(cast("Any", self.orders), "", cast("Any", self.queue), self.now, 1000)
        plan = PollPlan(60.0, timedelta(seconds=self.story.overlap), timedelta())
        turns = Turns(cast("Any", self.polls), look, plan, self.now, lambda _, high: high)
        turn = await turns.take(is_due=True)
        assert turn is not None
        try:
            async with self._bounded(within):
                found = await turns.run(turn, self._list)
        except (Fault, TimeoutError) as error:
            return self._note("poll", "failed", str(error) or "ended early")
        verdict: Verdict = "reported" if found.gaps.sentences else "clean"
        self.has_doubts |= bool(found.gaps.unproven)
        self.is_broken |= bool(found.gaps.unread)
        return self._note("poll", verdict, f"{found.counts} {found.gaps.sentences}")

    async def backfill(self, within: float = _LONGEST) -> Verdict:
        """Enqueue all orders that are missing or outdated. A backfill that has ended early continues."""
        record = self._backfill
        if record is None:
            self._backfill = record = MemoryJobs()
            self.backfill_from = self.now()
        held = Job(
            id=1,
            request=BackfillRequest.within(EARLIEST, None, self.backfill_from).as_job(),
            requested_by="test",
            requested_at=self.backfill_from,
            state=JobState.RUNNING,
            progress=record.progress,
        )
        listing = BackfilledList(self._list, cast("Any", self.orders), lambda *_: nullcontext(self.queue))
        none: Any = None
        parts = JobParts(none, none, cast("Any", record), none, listing=listing)
        try:
            async with self._bounded(within):
                state = await JobRun(held, parts).run()
        except TimeoutError:
            return self._note("backfill", "failed", f"ended early: {record.progress}")
        self._backfill = None
        verdict: Verdict = "clean" if state is JobState.DONE else "reported"
        self.complete_from = EARLIEST if verdict == "clean" else self.complete_from
        return self._note("backfill", verdict, f"{state} {record.progress} {record.error}")

    async def reconcile(self) -> Verdict:
        """Compare the list with the stored orders."""
        listing = Listing(self._list, EARLIEST, self.now(), is_complete=False)

        @asynccontextmanager
        async def opened() -> AsyncIterator[Places]:
            # A queued order is not missing, but is not stored either.
            self.work()
            yield Places(cast("Any", self.queue), cast("Any", self.orders))

        try:
            async with self._bounded():
                with ListLedger.open() as ledger:
                    report = await reconcile_list(listing, opened, ledger, Progress())
        except (Fault, TimeoutError) as error:
            return self._note("reconcile", "failed", str(error) or "waited")
        verdict: Verdict = "clean" if report.is_clean else "reported"
        return self._note("reconcile", verdict, f"{report.listed} listed, {report.differences} {report.gaps.sentences}")

    def change(self, count: int) -> None:
        """Change some orders, create some, and delete a few. Some are listed only later."""
        state, random = self.shop.state, self._random
        for _ in range(count):
            late = random.choice((0.0, 0.0, 0.0, 5.0, 20.0))
            kind = random.random()
            if kind < 0.3 or not len(state):
                state.create(late=late, quiet=True)
            elif kind < 0.35:
                state.delete(state.random_orders(1)[0], quiet=True)
            else:
                state.change(state.random_orders(1)[0], late=late, quiet=True)

    def work(self) -> None:
        """Fetch and store the queued orders, as workers do."""
        waiting, self.queue.waiting = self.queue.waiting, []
        for announcement, at in waiting:
            self._take(announcement, at)

    def calm(self) -> None:
        """Let the shop behave well and change nothing from now on."""
        self._is_calm = True
        self.shop.site.behave(**defaults(self.story.faults))

    def lacking(self, since: datetime, until: datetime) -> list[str]:
        """Return the orders whose last change is within a period, and that are not stored like that."""
        return [*self._lacking(since, until)]

    # -- parts --------------------------------------------------------------------------------------------------------

    def _lacking(self, since: datetime, until: datetime) -> Iterator[str]:
        behaviour = self.shop.site.behaviour
        # Whether an order may change once more within the unit of its time, a reading sees by a clock whose error it first has to learn.
        behind = timedelta(seconds=behaviour.database_behind)
        broken = self.shop.kind.number(str(self._named(self.story.faults | self.story.modes).get("breaking_id", "")))
        for order in self.shop.state.all_orders():
            if self.is_broken and order.number == broken:
                continue
            if (
                behaviour.left_out and not order.number % behaviour.left_out
            ) or not since <= order.updated_at + behind < until:
                continue
            order_id = self.shop.kind.order_id(order.number)
            row = self.orders.rows.get(order_id)
            if row is None:
                yield f"{order_id} missing ({order.updated_at:%H:%M:%S})"
            elif self._as_listed(row.updated_at) != self._as_listed(order.updated_at) or (
                behind <= timedelta() and row.content != self._content(order)
            ):
                stored = f"stored {row.updated_at:%H:%M:%S}, fetched {row.fetched_at:%H:%M:%S.%f}"
                yield f"{order_id} outdated ({stored}, is {order.updated_at:%H:%M:%S})"

    def _as_listed(self, at: datetime) -> str:
        """The time as far as the list shows it, if its clock is behind."""
        behaviour, at = self.shop.site.behaviour, at.astimezone(UTC)
        return at.strftime((behaviour.database_behind and behaviour.time_format) or "%FT%T.%f")

    def _named(self, modes: Any) -> dict[str, object]:
        return {
            name: self.shop.kind.order_id(value) if name == "breaking_id" else value for name, value in modes.items()
        }

    @asynccontextmanager
    async def _bounded(self, within: float = _LONGEST) -> AsyncIterator[None]:
        """Let a reading wait for long, but not send requests without an end."""
        self._most_requests = self._requests + _most_while_down() + _MOST_PER_ORDER * len(self.shop.state)
        self._changes_left = 0 if self._is_calm else 3 * self.story.size + 10
        try:
            async with asyncio.timeout(within):
                yield
        finally:
            if self._is_endless:
                raise Endless

    @property
    def _requests(self) -> int:
        """The requests that were not throttled."""
        return self._transport.requests - self.shop.state.counts["throttled"]

    async def _before_request(self) -> None:
        if self._requests > self._most_requests:
            self._is_endless = True
            await asyncio.sleep(_LONGEST)
        await asyncio.sleep(self._random.uniform(0.01, self.story.latency))
        if self._changes_left and self._random.random() < self.story.changes:
            self._changes_left -= 1
            self.change(1)
        if self._random.random() < 0.3:
            self.work()

    def _take(self, announcement: Announcement, at: datetime) -> None:
        if announcement.document is not None:
            document = cast("bytes", announcement.document)
            version = self._version(document)
            self.orders.store(announcement.order_id, MemoryRow(version, at, document))
            return
        order = self.shop.kind._views.read(self.shop.kind.number(announcement.order_id))
        if order is not None:
            self._store(order, self.now())

    def _store(self, order: ShopOrder, at: datetime) -> None:
        row = MemoryRow(order.updated_at, at, self._content(order))
        self.orders.store(self.shop.kind.order_id(order.number), row)

    def _content(self, order: ShopOrder) -> bytes:
        if self._shape.render is not None:
            return msgspec.json.encode(self._shape.render(order))
        refunded = sum(refund.quantity for refund in order.refunds)
        return f"{order.updated_at:%H:%M:%S} {order.status} {refunded}".encode()

    def _version(self, document: bytes) -> datetime:
        found = msgspec.json.decode(document)
        at = datetime.fromisoformat(found[self._declared.updated_at])
        return at if at.tzinfo is not None else at.replace(tzinfo=UTC)

    def _note(self, operation: str, verdict: Verdict, detail: str) -> Verdict:
        self.log.append(f"{self.now():%H:%M:%S} {operation}: {verdict} ({detail})")
        return verdict
