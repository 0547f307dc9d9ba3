"""Fetches or remaps the stored orders that a job selects, page by page.

    page of orders ──▶ reset versions ──▶ part of the job's file, with the progress ──▶ entries      (fetch)
    page of orders ──▶ rows                                                                          (remap)

The position of a job is the last order of the last page. If the process dies here, the next one repeats the last recorded page of orders to
fetch, or remaps the orders of the last second again, which stay as they are. The file of a fetch is the record of the orders whose rows
are compared later.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass
from typing import Any

from ingest.domain.errors import UserError
from ingest.domain.operating.jobs import Job, JobKind, JobProgress, JobRequest
from ingest.domain.orders.order_filter import OrderFilter, OrderPosition, order_filter_of
from ingest.operations.backends import Backends
from ingest.operations.jobs.changes import Changes
from ingest.operations.rebuilding.refetch import Refetching, ending_now
from ingest.operations.rebuilding.remap import Decoder, Identify
from ingest.operations.rebuilding.remap_report import RemapReport
from ingest.operations.rebuilding.remapping import recorded_steps
from ingest.operations.state.worker_versions import require_same_version
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.orders.documents import DocumentSelection

OpenDecoder = Callable[[], AbstractAsyncContextManager[tuple[Decoder, Identify]]]
"""Opens the mapping and the transform of a source."""

SAMPLE = "sample"
"""In the selection of a preview: the most orders to fetch."""
USUAL_SAMPLE, MOST_SAMPLE = 20, 100

_MOST = 500


def order_request(
    kind: JobKind, selection: OrderFilter, *, total: int | None = None, rate: float | None = None
) -> JobRequest:
    """Return the request for a job of a kind of orders.

    Args:
        kind: `ENQUEUE`, which fetches orders again, or `REMAP`.
        selection: the stored orders. Orders that are stored after the request do not belong to the job.
        total: how many match, if known.
        rate: limit of orders per second, or None.
    """
    return JobRequest(kind, ending_now(selection).as_object(), total, rate)


def preview_request(selection: OrderFilter, sample: int = USUAL_SAMPLE) -> JobRequest:
    """Return the request for a preview of `ENQUEUE`, which a worker of the source runs.

    Args:
        selection: the stored orders.
        sample: the most orders to fetch.
    """
    return JobRequest(JobKind.PREVIEW, {SAMPLE: sample, **ending_now(selection).as_object()})


@dataclass(frozen=True, slots=True)
class OrderChanges(Changes):
    """The changes of one job.

    Attributes:
        job: whose lease this process holds.
        servers: of its source.
        output: the files of its source.
        available: repeats a call until PostgreSQL is available.
        open_decoder: opens the mapping and the transform of the source. None if this process has none.
        on_wait: called with each reason for waiting.
    """

    job: Job
    servers: Backends
    output: JobOutput
    available: Callable[..., Awaitable[Any]]
    open_decoder: OpenDecoder | None
    on_wait: Callable[[str], None]

    async def changes(self) -> AsyncGenerator[JobProgress, None]:
        """See `Changes`. Documents that cannot be remapped fail the job after all others are."""
        selection = order_filter_of(self.job.request.selection)
        made = self._enqueued(selection) if self.job.kind is JobKind.ENQUEUE else self._remapped(selection)
        async with aclosing(made):
            async for progress in made:
                yield progress

    async def _enqueued(self, selection: OrderFilter) -> AsyncGenerator[JobProgress, None]:
        progress, rate = self.job.progress, self.job.request.rate
        limit = _MOST if rate is None else max(1, min(_MOST, int(rate)))
        parts, written = await self.available(self.output.parts, self.job.id)
        async with Refetching.open(self.servers, self.job.requested_by) as refetching:
            if parts and written.position != progress.position:
                last = await self.available(self.output.orders, self.job.id, parts - 1)
                await refetching.enqueue([each.order_id for each in last], express=False)
                yield (progress := written)
            pages = refetching.pages(selection, _position(progress.position), limit)
            async with aclosing(pages):
                async for page in pages:
                    done, order_ids = progress.done + len(page), [each.order_id for each in page]
                    progress = JobProgress(done, 0, done, page[-1]._asdict())
                    await refetching.reset(order_ids)
                    # Recorded before a worker can change a row, and enqueued again if the process dies in between.
                    await self.available(self.output.add_orders, self.job, parts, page, progress)
                    parts += 1
                    await refetching.enqueue(order_ids, express=False)
                    yield progress

    async def _remapped(self, selection: OrderFilter) -> AsyncGenerator[JobProgress, None]:
        if self.open_decoder is None:
            raise UserError("this process has no mapping: run `ingest job resume` where the workers run")
        await require_same_version(self.servers)
        before, report = self.job.progress, RemapReport()
        async with (
            self.open_decoder() as (decoder, identify),
            Pool.open(self.servers.postgres_dsn, size=1) as pool,
        ):
            steps = recorded_steps(
                self.servers,
                pool,
                decoder,
                DocumentSelection(selection),
                report,
                self.job.requested_by,
                identify=identify,
                on_locked=lambda _: self.on_wait("another transaction has locked the table or one of the next orders"),
                after=_position(before.position),
            )
            async with aclosing(steps):
                async for step in steps:
                    done, examined = report.changed + report.inserted, report.examined
                    position = step.position._asdict()
                    yield JobProgress(
                        before.done + done, before.gone + report.newer, before.examined + examined, position
                    )
        if report.failures:
            first = report.failures[0]
            raise UserError(
                f"{report.failed:,} documents cannot be used, such as of order {first.order_id}: {first.error}"
            )


def _position(recorded: Mapping[str, Any]) -> OrderPosition | None:
    return OrderPosition(**recorded) if recorded else None
