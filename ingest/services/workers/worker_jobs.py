"""The jobs of one source that need a worker: previews and backfills need credentials, and remaps the right to store orders.

If the process dies here, another one continues a remap or a backfill, and begins a preview again, because it changes nothing.
"""

from functools import partial
from typing import TYPE_CHECKING

from ingest.domain.fetch.listed import OrderList
from ingest.domain.operating.jobs import Job, JobKind
from ingest.flow.deliver.order_requests import OrderRequests
from ingest.flow.followed_controls import SourceControls
from ingest.services.jobs.job_runs import JobRuns
from ingest.services.jobs.job_search import OF_WORKERS
from ingest.services.workers.shared_parts import SharedParts
from ingest.store.connections.pool import SourceRecords

if TYPE_CHECKING:
    from ingest.operations.jobs.run import JobParts
    from ingest.settings import Settings


def worker_jobs(
    settings: "Settings",
    shared: SharedParts,
    controls: SourceControls,
    listed: OrderList | None,
    requests: OrderRequests,
) -> JobRuns:
    """Return the part of a worker that runs the jobs of its source.

    Args:
        settings: of the source.
        shared: the parts that all sources of the process use.
        controls: of the source.
        listed: the list of the source, if it has one.
        requests: of orders.
    """
    connection, source = SourceRecords(shared.store.of_source()), settings.source

    def parts_of(held: Job) -> "JobParts":
        # Workers need these only while a job runs.
        from ingest.operations.backends import Backends  # noqa: PLC0415
        from ingest.operations.jobs.run import JobParts  # noqa: PLC0415
        from ingest.services.order_decoding import open_order_decoder  # noqa: PLC0415
        from ingest.store.job_output import JobOutput  # noqa: PLC0415
        from ingest.store.jobs import Jobs  # noqa: PLC0415

        listing = None
        if held.kind is JobKind.BACKFILL and listed is not None:
            from ingest.operations.backfill.changes import Listing  # noqa: PLC0415

            listing = Listing(listed, connection)
        jobs, output = Jobs(connection, source), JobOutput(connection, source)
        return JobParts(
            shared.queue.control,
            Backends.of(settings),
            jobs,
            output,
            partial(open_order_decoder, settings),
            listing,
            requests.fetch,
        )

    kinds = [kind for kind in OF_WORKERS if kind is not JobKind.BACKFILL or listed is not None]
    return JobRuns(connection, [source], kinds, shared.name, shared.jobs, parts_of, lambda: controls.is_drained)
