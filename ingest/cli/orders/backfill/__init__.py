"""`ingest backfill`: enqueues the missing and outdated orders of a period, from the shop's list."""

from typing import Annotated

import typer

from ingest.cli.invocation import start_with_source
from ingest.cli.options import TIME, AsJson, OneSource, parse_listed_period
from ingest.domain.errors import ConfigError

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

    request = BackfillRequest(*parse_listed_period(since, until), rate, dry_run)
    settings = start_with_source(source)
    raise typer.Exit(print_ended(start_and_run(settings, request), as_json=as_json))
