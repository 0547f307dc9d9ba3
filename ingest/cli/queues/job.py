"""`ingest job`: lists, shows, cancels and resumes jobs."""

import json
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from msgspec.structs import asdict

from ingest.cli.invocation import actor, backends_of_sources, holder, reader, say
from ingest.cli.listing import LONGEST_ERROR, Listing, compact
from ingest.cli.options import AsJson, Limit, Sources
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_time
from ingest.domain.errors import UserError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.operating.jobs import Job

COMMANDS = ("list", "show", "cancel", "resume")

JobId = Annotated[int, typer.Argument(help="Number of the job.", metavar="ID", hidden=True, min=1)]

_JOBS: "Listing[Job]" = Listing(
    {
        "id": lambda job: str(job.id),
        "kind": lambda job: job.kind.value,
        "state": lambda job: job.state.value,
        "done": lambda job: f"{job.progress.done:,}",
        "of": lambda job: "" if job.request.total is None else f"{job.request.total:,}",
        "per second": lambda job: f"{job.progress.per_second:,.0f}" if job.progress.per_second else "",
        "requested": lambda job: format_time(job.requested_at),
        "by": lambda job: printable(job.requested_by, 64),
        "problem": lambda job: printable(job.error or "", LONGEST_ERROR),
    },
    names=1,
    facts=7,
    nothing="no jobs",
    as_json=lambda job: _as_text(job),  # noqa: PLW0108  defined below
    source=lambda job: job.source,
    below=lambda row: compact(row[-1], row[-2]),
)


def job() -> None:
    """Manage jobs, the resumable changes of many orders.

    A replay, drop or export of dead letters, a run of retries, a fetch of many orders and its preview, a remap, and a backfill are
    jobs. If the process of a job dies, another process continues it within seconds: a worker for backfills, previews and remaps, a
    process of `ingest api` for all others. You can also continue a job with `ingest job resume`, and a backfill with `ingest backfill
    resume`. No dead letter or retry is changed or exported twice.

    Examples:
    `ingest job list` lists the newest jobs with their progress.

    `ingest job cancel 12` stops a job. Changes that it has made stay.

    `ingest job resume 12` continues the job from where it stopped.

    Run `ingest job resume --help` for the help of a command.
    """


def list_(*, source: Sources = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List jobs with their progress, newest first.

    Examples:
    `ingest job list` lists the newest 50 of all sources.

    `ingest job list --source shop-de --json` prints one JSON object per line, for scripts.
    """
    from ingest.cli.queues.bulk import newest

    found = run_interruptible(newest(backends_of_sources(source), limit + 1))
    _JOBS.show(found, as_json=as_json, limit=limit)


def show(job: JobId) -> None:
    """Show a job as JSON, with its result.

    The result of a preview is `result`. Of orders that a job fetches again, `rows` counts those that workers have fetched by now, and
    how many rows have changed or not.

    Examples:
    `ingest job show 12 | jq .rows` shows how many rows a fetch of many orders has changed.

    `ingest job show 12 | jq .selection` shows which entries it changes.
    """
    from ingest.cli.queues.bulk import find
    from ingest.operations.jobs import preview_result, refetched_rows
    from ingest.operations.jobs.shown import JobWithResult, shown_with
    from ingest.store.connections.pool import Pool
    from ingest.store.job_output import JobOutput
    from ingest.store.jobs import Jobs

    async def run() -> JobWithResult:
        sources = backends_of_sources(None)
        found = await find(sources, job)
        async with Pool.open(sources[found.source].postgres_dsn, size=1) as pool:
            result = await preview_result(Jobs(pool, found.source), found, reader("job show"))
            return shown_with(result, await refetched_rows(JobOutput(pool, found.source), found), found)

    described = msgspec.to_builtins(run_interruptible(run()), builtin_types=(datetime,))
    typer.echo(json.dumps(described, default=format_time))


def cancel(job: JobId, *, as_json: AsJson = False) -> None:
    """Cancel an unfinished job. Its changes stay.

    The process that runs it stops within seconds. `ingest job resume` continues it later.

    Examples:
    `ingest job cancel 12` cancels job 12. `ingest job list` shows the numbers.
    """
    from ingest.cli.queues.bulk import cancel_job

    _print_ended(run_interruptible(cancel_job(backends_of_sources(None), job)), as_json=as_json)


def resume(job: JobId, *, as_json: AsJson = False) -> None:
    """Continue a cancelled, failed or waiting job here.

    If its process has died, it can be resumed when its lease has expired, after 10 seconds at most. By then, a process of `ingest api` may
    have taken it.

    Examples:
    `ingest job resume 12` continues job 12. `ingest job list` shows the numbers.
    """
    from ingest.cli.queues.bulk import find, open_parts, run_held
    from ingest.cli.terminal.progress import ProgressDisplay
    from ingest.domain.operating.jobs import JobKind, JobState
    from ingest.operations import jobs as operations
    from ingest.services.order_decoding import open_order_decoder
    from ingest.settings import load_settings
    from ingest.settings.source_file import source_settings_without_secrets

    async def run() -> "Job":
        sources = backends_of_sources(None)
        found = await find(sources, job)
        if found.kind is JobKind.BACKFILL:
            raise UserError(f"the job {job} is a backfill: use `ingest backfill resume {job}`")
        settings = source_settings_without_secrets(load_settings())[found.source]
        opening = open_parts(sources[found.source], partial(open_order_decoder, settings))
        with ProgressDisplay(found.kind.value, found.request.total) as display:
            async with opening as parts:
                held = await operations.resume(parts.jobs, found, actor(), holder())
                return await run_held(
                    held, parts, lambda progress: display.update(progress.done + progress.gone), display.say
                )

    ended = run_interruptible(run())
    _print_ended(ended, as_json=as_json)
    raise typer.Exit(0 if ended.state is JobState.DONE else 1)


def _as_text(found: "Job") -> str:
    from ingest.operations.jobs.shown import shown

    return json.dumps(asdict(shown(found)), default=format_time)


def _print_ended(ended: "Job", *, as_json: bool) -> None:
    if as_json:
        typer.echo(_as_text(ended))
        return
    gone = f", {ended.progress.gone:,} were already gone" if ended.progress.gone else ""
    typer.echo(f"the job {ended.id} ({ended.kind}) is {ended.state}: {ended.progress.done:,} done{gone}")
    if ended.error:
        say(printable(ended.error))
