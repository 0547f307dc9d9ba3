"""`ingest backfill resume`: continues a backfill from where it has ended."""

import typer

from ingest.cli.invocation import backends_of_sources, start_with_source
from ingest.cli.options import AsJson, JobId
from ingest.process.interrupt import run_interruptible


def resume(job: JobId, *, as_json: AsJson = False) -> None:
    """Continue a cancelled, failed or waiting backfill.

    It continues from where it has ended.

    If its process has died, it can be resumed when its lease has expired, after 10 seconds at most. The page of the list that was
    being processed is read again, so that no order is left out.

    Examples:
    `ingest backfill resume 12` continues the backfill with this number, see `ingest backfill list`.
    """
    from ingest.cli.orders.backfill.running import print_ended, resume_and_run
    from ingest.cli.queues.bulk import find
    from ingest.domain.operating.jobs import JobKind

    found = run_interruptible(find(backends_of_sources(None), job, JobKind.BACKFILL))
    settings = start_with_source([found.source] if found.source else None)
    raise typer.Exit(print_ended(resume_and_run(settings, found), as_json=as_json))
