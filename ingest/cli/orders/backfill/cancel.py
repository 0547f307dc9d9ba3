"""`ingest backfill cancel`: cancels an unfinished backfill."""

import typer

from ingest.cli.invocation import actor, backends_of_sources
from ingest.cli.options import AsJson, JobId
from ingest.process.interrupt import run_interruptible


def cancel(job: JobId, *, as_json: AsJson = False) -> None:
    """Cancel an unfinished backfill.

    Orders that are already enqueued stay in the queue.

    The process that runs it stops within seconds. `ingest backfill resume` continues it later.

    Examples:
    `ingest backfill cancel 12` cancels the backfill with this number, see `ingest backfill list`.
    """
    from ingest.cli.orders.backfill.found import as_text, source_of_job
    from ingest.cli.orders.backfill.running import cancelled_text
    from ingest.domain.operating.backfill import Backfill
    from ingest.operations import backfill as operations
    from ingest.store.audit import AuditLog
    from ingest.store.backfills import Backfills
    from ingest.store.connections.pool import Pool

    async def run() -> Backfill:
        sources = backends_of_sources(None)
        source = await source_of_job([*sources.values()], job)
        async with Pool.open(sources[source].postgres_dsn, size=1) as pool:
            return await operations.cancel(Backfills(pool, source), AuditLog(pool, source), job, actor())

    cancelled = run_interruptible(run())
    if as_json:
        typer.echo(as_text(cancelled))
    else:
        typer.echo(cancelled_text(cancelled))
