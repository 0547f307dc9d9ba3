"""Previews the effect of fetching the stored orders that a job selects. The next process begins again, because a preview changes nothing."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, field

from ingest.domain.errors import StoreLocked, StoreTooSlow, UserError
from ingest.domain.operating.jobs import Job, JobProgress
from ingest.domain.orders.field_differences import ChangePreview
from ingest.domain.orders.order_filter import order_filter_of
from ingest.domain.orders.plain_order import StorableOrder
from ingest.operations.backends import Backends
from ingest.operations.jobs.changes import Changes
from ingest.operations.jobs.orders import SAMPLE
from ingest.operations.rebuilding.refetch_preview import RefetchPreview, preview_steps

FetchOrder = Callable[[str, Callable[[str], None]], Awaitable[tuple[StorableOrder, ...]]]
"""Requests an order as a worker does, and calls the second argument with each reason for waiting."""


@dataclass(slots=True)
class Preview(Changes):
    """The preview of one job.

    Attributes:
        job: whose lease this process holds.
        servers: of its source.
        fetch: requests orders.
        on_wait: called with each reason for waiting.
    """

    job: Job
    servers: Backends
    fetch: FetchOrder
    on_wait: Callable[[str], None]
    _preview: RefetchPreview = field(default_factory=lambda: RefetchPreview(None))

    async def changes(self) -> AsyncGenerator[JobProgress, None]:
        """See `Changes`. A step is an order."""
        selection = self.job.request.selection
        steps = preview_steps(self.servers, order_filter_of(selection), self._fetch, selection[SAMPLE])
        try:
            async with aclosing(steps):
                async for self._preview in steps:
                    yield JobProgress(examined=self._preview.fetched)
        except StoreLocked:
            raise
        except StoreTooSlow as error:
            raise UserError(str(error)) from error

    async def _fetch(self, order_id: str) -> tuple[StorableOrder, ...]:
        return await self.fetch(order_id, self.on_wait)

    def result(self) -> tuple[ChangePreview, Collection[str]]:
        """See `Changes`."""
        return self._preview.result(), self._preview.shown_orders()
