"""Runs one backfill: reads the shop's list page by page, and enqueues the orders that are missing or outdated.

    list ──▶ comparison with the stored orders ──▶ main lane ──▶ position in PostgreSQL

The place in the list is recorded after the orders of its page are queued. If the process dies in between, the next process reads the page again.
An order may then be enqueued twice, but no order is left out.

A dry run does the same, except that it enqueues nothing.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec

from ingest.backoff import call_until_available
from ingest.domain.errors import ListFault, PermanentFault, RowsRefused, Unavailable, UserError
from ingest.domain.fetch.listed import ListedOrder, OrderList
from ingest.domain.fetch.reading import Reading
from ingest.domain.operating.backfill import Backfill, BackfillProgress, JobState
from ingest.operations.backfill.differing import differing
from ingest.operations.backfill.lane import Lane, fill
from ingest.operations.backfill.pace import BackfillPace
from ingest.operations.leased import while_renewed
from ingest.operations.list_pages import FIRST_PAUSE, REJECTIONS, Page, pages_of, persistently
from ingest.store.backfills import LEASE_SECONDS, Backfills
from ingest.store.connections.statements import Fetches

_T = TypeVar("_T")
# The run of a cancelled job stops after this time at the latest.
_RENEW_EVERY = LEASE_SECONDS / 10


@dataclass(frozen=True, slots=True)
class BackfillParts:
    """The parts of a run.

    Attributes:
        listed: the list of the shop.
        connection: to PostgreSQL.
        lane: where orders are enqueued.
        backfills: records the job.
    """

    listed: OrderList
    connection: Fetches
    lane: Lane
    backfills: Backfills


class BackfillRun:
    """Runs a job whose lease this process holds.

    Args:
        held: the job.
        parts: of the run.
        on_progress: called with the progress, and with the number of orders that are enqueued since then.
        on_wait: called with the reason when the run has to wait, once for each reason.
        first_pause: seconds after the first failure of a page of the list.

    Attributes:
        progress: after the last page whose orders are all enqueued.
        missing_or_skipped: missing orders of this run of which the list does not show whether the mapping skips them.
    """

    def __init__(
        self,
        held: Backfill,
        parts: BackfillParts,
        *,
        on_progress: Callable[[BackfillProgress, int], None] = lambda _progress, _enqueued: None,
        on_wait: Callable[[str], None] = lambda _: None,
        first_pause: float = FIRST_PAUSE,
    ) -> None:
        self._held = held
        self._parts = parts
        self._pace = BackfillPace(held.request.rate)
        self._lane = _AvailableLane(parts.lane, self._available)
        self.progress = held.progress
        self.missing_or_skipped = 0
        self._on_progress = on_progress
        self._on_wait = on_wait
        self._first_pause = first_pause
        self._problem: str | None = None
        self._reading = self._reading_from(held.progress.next_page)

    async def run(self) -> JobState:
        """Run the job to its end. When cancelled, the lease is still held, and the caller decides about the job.

        Returns the final state, which is recorded.

        Raises:
            LeaseLost: the job was cancelled, or another process has taken it.
            UserError: a server denies access. The job waits for another process after the lease.
        """
        return await while_renewed(self._read(), self._renew())

    async def _read(self) -> JobState:
        try:
            try:
                await self._read_pages()
            except (PermanentFault, ListFault) as error:
                if self._held.progress.next_page is None:
                    raise
                # Shops accept some cursors for minutes only. Orders that are stored by now are not enqueued again.
                self._wait_for(f"{error}. The list is read from its beginning")
                self.progress = self._before_first_page()
                self._reading = self._reading_from(None)
                await self._read_pages()
        except (*REJECTIONS, RowsRefused) as error:
            return await self._end(JobState.FAILED, str(error))
        if gaps := self._reading.gaps.sentences:
            self.progress = msgspec.structs.replace(self.progress, next_page=None)
            return await self._end(
                JobState.FAILED, f"the list was read to its end, but not completely: {'; '.join(gaps)}"
            )
        # With the progress of the last page, because without a cursor the job would begin again.
        return await self._end(JobState.DONE)

    def _reading_from(self, place: str | None) -> Reading:
        request = self._held.request
        return Reading(self._parts.listed.shape, request.since, request.until, place)

    async def _read_pages(self) -> None:
        reading = self._reading
        pause_after = persistently(self._first_pause)
        async for page in pages_of(self._parts.listed, reading, pause_after=pause_after, on_wait=self._wait_for):
            await self._take(page)
            self._problem = None
            if reading.request is not None:
                await self._available(self._parts.backfills.record, self._held, self.progress)

    async def _end(self, state: JobState, error: str | None = None) -> JobState:
        await self._available(self._parts.backfills.end, self._held, state, self.progress, error)
        return state

    async def _take(self, page: Page) -> None:
        """Count the orders of a page that are missing or outdated, and enqueue them."""
        before, request = self.progress, self._held.request
        unit = self._parts.listed.shape.unit
        found = await self._available(differing, self._parts.connection, self._held.source, page, request, unit)
        if not request.dry_run:
            await fill(
                self._lane,
                self._pace,
                found.orders,
                on_enqueued=lambda count: self._on_progress(before, count),
                on_full=lambda _: self._wait_for("the workers have not finished the orders in the queue"),
            )
        self.progress = BackfillProgress(
            None if self._reading.request is None else self._reading.place,
            before.listed + found.listed,
            before.missing + found.missing,
            before.outdated + found.outdated,
        )
        self.missing_or_skipped += found.missing_or_skipped
        self._on_progress(self.progress, 0)

    def _before_first_page(self) -> BackfillProgress:
        """Return the progress when the list is read again: enqueued orders still count, but a dry run counts from zero."""
        if self._held.request.dry_run:
            return BackfillProgress()
        return msgspec.structs.replace(self.progress, next_page=None, listed=0)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(_RENEW_EVERY)
            try:
                await self._parts.backfills.renew(self._held, self._problem)
            except Unavailable as error:
                self._wait_for(f"{error.server} is unavailable: {error}")

    async def _available(self, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """Call a server, and repeat the call while the server is unavailable."""
        return await call_until_available(
            call,
            *arguments,
            passes=lambda error: isinstance(error, Unavailable) and not isinstance(error, UserError),
            on_failure=lambda error: self._wait_for(f"{getattr(error, 'server', 'a server')} is unavailable: {error}"),
        )

    def _wait_for(self, reason: str) -> None:
        if reason != self._problem:
            self._problem = reason
            self._on_wait(reason)


class _AvailableLane:
    """Implements `Lane`, and waits while Redis is unavailable."""

    def __init__(self, lane: Lane, available: Callable[..., Awaitable[Any]]) -> None:
        self._lane = lane
        self._available = available

    async def occupied(self) -> int:
        occupied: int = await self._available(self._lane.occupied)
        return occupied

    async def enqueue(self, orders: Sequence[ListedOrder]) -> None:
        await self._available(self._lane.enqueue, orders)
