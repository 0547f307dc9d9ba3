"""`ingest backfill`: enqueues the missing and outdated orders of a period, from the shop's list."""

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec.structs import asdict

from ingest.cli.invocation import backends_of_sources, start_with_source
from ingest.cli.listing import LONGEST_ERROR, Listing, compact
from ingest.cli.options import TIME, AsJson, JobId, Limit, OneSource, Sources, parse_listed_period
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_time
from ingest.domain.errors import ConfigError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.jobs.shown import ShownBackfill

COMMANDS = ("list", "cancel", "resume")


def backfill(
    context: typer.Context,
    *,
    source: OneSource = None,
    since: Annotated[str | None, typer.Option(help=f"Changed at this time or later. {TIME}", metavar="TIME")] = None,
    until: Annotated[
        str | None, typer.Option(help=f"Changed at this time or earlier. Defaults to now. {TIME}", metavar="TIME")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Enqueue at most N orders per second.", metavar="N", min=0.001)
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count the orders that would be enqueued.")] = False,
    as_json: AsJson = False,
) -> None:
    """Enqueue missing and outdated orders of a period.

    It finds them in the shop's list.

    The list is described by the table `list` of the source. An order is missing if it is not stored, and outdated if an older
    version is stored. Erased orders are left out.

    The orders are enqueued in small portions, so that live orders do not wait behind them. A backfill is a job with a number
    and continues if this process dies. A worker then runs it within 20 seconds, or you resume it. A source
    has at most one unfinished backfill. A dry run counts as one.

    Ctrl-C cancels the backfill. It can be resumed.

    Examples:
    `ingest backfill --source shop-de --since 2026-10-01` runs a backfill of one source.

    `ingest backfill --since 30d --until 7d --dry-run` counts the orders that a backfill of the only source would enqueue.

    `ingest backfill --source shop-de --since 2026-10-01 --rate 5` enqueues at most 5 orders per second.

    `ingest backfill list` lists all backfills.

    `ingest backfill cancel 12` cancels one.

    `ingest backfill resume 12` continues it from where it has ended.
    """
    if context.invoked_subcommand is not None:
        if given := [
            name for name in ("source", "since", "until", "rate", "dry_run", "as_json") if context.params[name]
        ]:
            option = f"--{given[0].removeprefix('as_').replace('_', '-')}"
            raise typer.BadParameter(f"{option} belongs behind `{context.invoked_subcommand}`")
        return
    if since is None:
        raise ConfigError("--since is missing: `ingest backfill --since 2026-10-01`")
    from ingest.cli.orders.backfill.running import print_ended, start_and_run
    from ingest.domain.operating.backfill import BackfillRequest

    period = parse_listed_period(since, until)
    request = BackfillRequest.within(*period, datetime.now(UTC), rate=rate, dry_run=dry_run)
    settings = start_with_source(source)
    raise typer.Exit(print_ended(start_and_run(settings, request), as_json=as_json))


def list_(*, source: Sources = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List backfills, the newest first. Changes nothing.

    Missing and outdated orders were enqueued, except in a dry run. A worker continues a waiting backfill within 20 seconds, or you do with `ingest backfill resume`.

    Examples:
    `ingest backfill list` lists the newest 50 of all sources.

    `ingest backfill list --source shop-de --json` prints one JSON object per line.
    """
    from ingest.cli.queues.bulk import newest
    from ingest.domain.operating.jobs import JobKind
    from ingest.operations.jobs.shown import shown_backfill

    found = run_interruptible(newest(backends_of_sources(source), limit + 1, [JobKind.BACKFILL]))
    _BACKFILLS.show([*map(shown_backfill, found)], as_json=as_json, limit=limit)


_BACKFILLS: "Listing[ShownBackfill]" = Listing(
    {
        "id": lambda backfill: str(backfill.id),
        "state": lambda backfill: backfill.state + (" (dry run)" if backfill.dry_run else ""),
        "listed": lambda backfill: f"{backfill.listed:,}",
        "missing": lambda backfill: f"{backfill.missing:,}",
        "outdated": lambda backfill: f"{backfill.outdated:,}",
        "since": lambda backfill: format_time(backfill.since),
        "until": lambda backfill: format_time(backfill.until),
        "requested by": lambda backfill: printable(backfill.requested_by, 64),
        "problem": lambda backfill: printable(backfill.error or "", LONGEST_ERROR),
    },
    names=1,
    facts=5,
    nothing="no backfills",
    as_json=lambda backfill: json.dumps(asdict(backfill), default=format_time),
    source=lambda backfill: backfill.source,
    # A problem is first, because a narrow terminal cuts the line.
    below=lambda row: compact(row[-1], f"{row[-4]} to {row[-3]}", row[-2]),
)


def cancel(job: JobId, *, as_json: AsJson = False) -> None:
    """Cancel an unfinished backfill.

    Orders that are already enqueued stay in the queue.

    The process that runs it stops within seconds. `ingest backfill resume` continues it later.

    Examples:
    `ingest backfill cancel 12` cancels the backfill with this number, see `ingest backfill list`.
    """
    from ingest.cli.orders.backfill.running import as_text, cancelled_text
    from ingest.cli.queues.bulk import cancel_job
    from ingest.domain.operating.jobs import JobKind

    cancelled = run_interruptible(cancel_job(backends_of_sources(None), job, JobKind.BACKFILL))
    typer.echo(as_text(cancelled) if as_json else cancelled_text(cancelled))


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
