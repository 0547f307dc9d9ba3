"""Makes the changes of one backfill: reads the shop's list page by page, and enqueues the orders that are missing or outdated.

    list ──▶ comparison with the stored orders ──▶ main lane ──▶ position in PostgreSQL

The place in the list is recorded after the orders of its page are queued. If the process dies in between, the next process reads the page
again. An order may then be enqueued twice, but no order is left out.

A dry run does the same, except that it enqueues nothing.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Any

import msgspec

from ingest.domain.errors import ListFault, PermanentFault, RowsRefused, UserError
from ingest.domain.fetch.list_clock import ListClock
from ingest.domain.fetch.list_gaps import maybe_skipped
from ingest.domain.fetch.listed import ListedOrder, OrderList
from ingest.domain.fetch.reading import Reading
from ingest.domain.operating.backfill import BackfillProgress, BackfillRequest
from ingest.domain.operating.jobs import Job, JobProgress
from ingest.operations.backends import Backends
from ingest.operations.backfill.lane import Lane, fill, open_main_lane
from ingest.operations.backfill.pace import BackfillPace
from ingest.operations.jobs.changes import Changes
from ingest.operations.list_pages import FIRST_PAUSE, REJECTIONS, pages_of, persistently, utc_now, within
from ingest.store.connections.statements import Fetches
from ingest.store.orders.listed_changes import changed_orders


@dataclass(frozen=True, slots=True)
class Listing:
    """The parts that a backfill needs.

    Attributes:
        listed: the list of the shop.
        connection: to PostgreSQL.
        open_lane: opens the lane in which orders are enqueued.
        first_pause: seconds after the first failure of a page of the list.
    """

    listed: OrderList
    connection: Fetches
    open_lane: Callable[[Backends, str], AbstractAsyncContextManager[Lane]] = open_main_lane
    first_pause: float = FIRST_PAUSE


class BackfillChanges(Changes):
    """The changes of one job.

    Args:
        job: whose lease this process holds.
        servers: of its source.
        listing: its list.
        available: repeats a call until its server is available.
        on_wait: called with each reason for waiting.
    """

    is_recorded_at_once = True

    def __init__(
        self,
        job: Job,
        servers: Backends,
        listing: Listing,
        available: Callable[..., Awaitable[Any]],
        on_wait: Callable[[str], None],
    ) -> None:
        self._source = job.source
        self._servers = servers
        self._listing = listing
        self._available = available
        self._on_wait = on_wait
        self._request = BackfillRequest.of(job)
        self._progress = BackfillProgress.of(job.progress)
        self._pace = BackfillPace(self._request.rate)
        self._reading = self._reading_from(self._progress.next_page)
        # Missing orders of this run of which the list does not show whether the mapping skips them.
        self._missing_or_skipped = 0

    async def changes(self) -> AsyncGenerator[JobProgress, None]:
        """See `Changes`. A step is a portion of a page."""
        try:
            async with (
                self._listing.open_lane(self._servers, "backfill") as lane,
                aclosing(self._read(lane)) as steps,
            ):
                async for step in steps:
                    yield step
        except (*REJECTIONS, RowsRefused) as error:
            raise UserError(str(error)) from error
        if gaps := self._reading.gaps.sentences:
            self._progress = msgspec.structs.replace(self._progress, next_page=None)
            yield self._step()
            raise UserError(f"the list was read to its end, but not completely: {'; '.join(gaps)}")

    def unproven(self) -> str:
        """See `Changes`."""
        return maybe_skipped(self._missing_or_skipped)

    async def _read(self, lane: Lane) -> AsyncGenerator[JobProgress, None]:
        may_begin_again = self._progress.next_page is not None
        while True:
            pause_after = persistently(self._listing.first_pause)
            pages = pages_of(self._listing.listed, self._reading, pause_after=pause_after, on_wait=self._on_wait)
            try:
                async for page, new in pages:
                    async with aclosing(self._take(page.sent_at, new, lane)) as steps:
                        async for step in steps:
                            yield step
            except (PermanentFault, ListFault) as error:
                if not may_begin_again:
                    raise
                # Shops accept some cursors for minutes only. Orders that are stored by now are not enqueued again.
                self._on_wait(f"{error}. The list is read from its beginning")
                may_begin_again = False
                # Enqueued orders still count, but a dry run counts from zero.
                begun = BackfillProgress() if self._request.dry_run else self._progress
                self._progress = msgspec.structs.replace(begun, next_page=None, listed=0)
                self._reading = self._reading_from(None)
            else:
                return

    def _reading_from(self, place: str | None) -> Reading:
        return Reading(self._listing.listed.shape, self._request.since, self._request.end, place)

    async def _take(
        self, sent_at: datetime | None, new: Sequence[ListedOrder], lane: Lane
    ) -> AsyncGenerator[JobProgress, None]:
        """Count the orders of a page that are missing or outdated, and enqueue them."""
        unit, now = self._listing.listed.shape.unit, utc_now()
        orders = within(new, self._request.since - unit, self._request.end)
        clock = ListClock(sent_at or now, now - (sent_at or now), unit)
        changed: Mapping[str, bool] = await self._available(
            changed_orders, self._listing.connection, self._source, orders, clock
        )
        found = [order for order in orders if order.order_id in changed]
        if not self._request.dry_run:
            on_full = partial(self._on_wait, "the workers have not finished the orders in the queue")
            async with aclosing(fill(lane, self._pace, found, on_full, self._available)) as portions:
                async for count in portions:
                    yield self._step(count)
        before, missing = self._progress, sum(changed.values())
        self._progress = BackfillProgress(
            # With the place of the last page, because without a cursor the job would begin again.
            None if self._reading.request is None else self._reading.place,
            before.listed + len(orders),
            before.missing + missing,
            before.outdated + len(changed) - missing,
        )
        self._missing_or_skipped += sum(order.is_skipped is None and changed[order.order_id] for order in found)
        yield self._step()

    def _step(self, more: int = 0) -> JobProgress:
        return self._progress.as_job(dry_run=self._request.dry_run, more=more)
