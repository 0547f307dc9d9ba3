"""`ingest job`: lists, shows, cancels and resumes jobs."""

import json
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import actor, backends_of_sources, holder, reader, say
from ingest.cli.options import AsJson, Limit, Sources
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_time
from ingest.cli.terminal.width import Table, print_table
from ingest.domain.errors import UserError
from ingest.domain.source_name import UNNAMED
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.operating.jobs import Job

COMMANDS = ("list", "show", "cancel", "resume")

JobId = Annotated[int, typer.Argument(help="Number of the job.", metavar="ID", hidden=True, min=1)]

_TABLE = Table(("id", "kind", "state", "done", "of", "per second", "requested", "by", "problem"), names=1, facts=7)
_LONGEST_ERROR = 100


def job() -> None:
    """Manage jobs, the resumable changes of many orders.

    A replay, drop or export of dead letters, a run of retries, a fetch of many orders and its preview, a remap, and a backfill are jobs. If the process of a job dies, another process continues it
    within seconds: a worker for backfills, previews and remaps, a process of `ingest api` for all others. You can also continue
    a job with `ingest job resume`, and a backfill with `ingest backfill resume`. No dead letter or retry is changed or exported twice.

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

    sources = backends_of_sources(source)
    found = run_interruptible(newest(sources, limit))
    if as_json:
        with standard_output() as stream:
            stream.writelines(_as_text(each) + "\n" for each in found)
    elif found:
        _print_table(found, with_source=UNNAMED not in sources)
    else:
        say("no jobs")
    raise typer.Exit


def show(job: JobId) -> None:
    """Show a job as JSON, with the result of a preview.

    Examples:
    `ingest job show 12 | jq .selection` shows which entries it changes.
    """
    from ingest.cli.queues.bulk import find
    from ingest.operations.jobs import described
    from ingest.store.connections.pool import Pool
    from ingest.store.jobs import Jobs

    async def run() -> dict[str, Any]:
        sources = backends_of_sources(None)
        found = await find(sources, job)
        async with Pool.open(sources[found.source].postgres_dsn, size=1) as pool:
            return await described(Jobs(pool, found.source), found, reader("job show"))

    typer.echo(json.dumps(run_interruptible(run()), default=format_time))


def cancel(job: JobId, *, as_json: AsJson = False) -> None:
    """Cancel an unfinished job. Its changes stay.

    The process that runs it stops within seconds. `ingest job resume` continues it later.

    Examples:
    `ingest job cancel 12` cancels job 12. `ingest job list` shows the numbers.
    """
    from ingest.cli.queues.bulk import cancel_job, find

    async def run() -> "Job":
        sources = backends_of_sources(None)
        return await cancel_job(sources, await find(sources, job))

    _print_ended(run_interruptible(run()), as_json=as_json)


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
    return json.dumps(found.as_dict(), default=format_time)


def _print_ended(ended: "Job", *, as_json: bool) -> None:
    if as_json:
        typer.echo(_as_text(ended))
        return
    gone = f", {ended.progress.gone:,} were already gone" if ended.progress.gone else ""
    typer.echo(f"the job {ended.id} ({ended.kind}) is {ended.state}: {ended.progress.done:,} done{gone}")
    if ended.error:
        say(printable(ended.error))


def _print_table(found: "Sequence[Job]", *, with_source: bool) -> None:
    rows: list[Any] = [
        (
            *([each.source] if with_source else ()),
            str(each.id),
            each.kind.value,
            each.state.value,
            f"{each.progress.done:,}",
            "" if each.request.total is None else f"{each.request.total:,}",
            f"{each.progress.per_second:,.0f}" if each.progress.per_second else "",
            format_time(each.requested_at),
            printable(each.requested_by, 64),
            printable(each.error or "", _LONGEST_ERROR),
        )
        for each in found
    ]
    table = _TABLE.with_column("source") if with_source else _TABLE
    print_table(table, rows, ["  ".join(filter(None, (row[-1], row[-2]))) for row in rows])
