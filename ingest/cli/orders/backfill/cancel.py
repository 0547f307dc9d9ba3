"""`ingest backfill cancel`: cancels an unfinished backfill."""

import typer

from ingest.cli.invocation import backends_of_sources
from ingest.cli.options import AsJson, JobId
from ingest.process.interrupt import run_interruptible


def cancel(job: JobId, *, as_json: AsJson = False) -> None:
    """Cancel an unfinished backfill.

    Orders that are already enqueued stay in the queue.

    The process that runs it stops within seconds. `ingest backfill resume` continues it later.

    Examples:
    `ingest backfill cancel 12` cancels the backfill with this number, see `ingest backfill list`.
    """
    from ingest.cli.orders.backfill.running import as_text, cancelled_text
    from ingest.cli.queues.bulk import cancel_job, find
    from ingest.domain.operating.jobs import Job, JobKind

    async def run() -> Job:
        sources = backends_of_sources(None)
        return await cancel_job(sources, await find(sources, job, JobKind.BACKFILL))

    cancelled = run_interruptible(run())
    typer.echo(as_text(cancelled) if as_json else cancelled_text(cancelled))
