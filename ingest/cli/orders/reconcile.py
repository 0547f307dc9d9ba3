"""`ingest reconcile`: reports where accepted orders are, and which are missing."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from ingest.cli.invocation import backends_of_source, refuse, require, start_with_source
from ingest.cli.options import TIME, ListColumn, ListedIds, ListFile, ListFormat, OneSource, option, parse_listed_period
from ingest.domain.errors import ConfigError
from ingest.process.interrupt import run_interruptible

_SOURCES = "--since for the shop's list, or order IDs or --file (`-` for stdin): see `ingest reconcile --help`"
_SHOP, _IDS = "With --since: the shop's list", "With order IDs or --file"
# The options of each kind of list, which mean nothing with the other one.
_OF_SHOP = ("until", "no_unexpected", "enqueue_missing", "enqueue_differing", "report", "metrics")
_OF_IDS = ("file", "column", "file_format", "complete")

Since = Annotated[
    str | None, option(_SHOP, f"Read the shop's list. Changed at this time or later. {TIME}", metavar="TIME")
]
Until = Annotated[
    str | None, option(_SHOP, f"Changed at this time or earlier. Defaults to now. {TIME}", metavar="TIME")
]


def reconcile(  # noqa: PLR0913  each is an option
    context: typer.Context,
    ids: ListedIds = None,
    *,
    source: OneSource = None,
    since: Since = None,
    until: Until = None,
    enqueue_missing: Annotated[
        bool, option(_SHOP, "Enqueue missing and outdated orders.", "--enqueue-missing")
    ] = False,
    enqueue_differing: Annotated[
        bool,
        option(_SHOP, "Enqueue these, and orders that differ or could not be compared.", "--enqueue-differing"),
    ] = False,
    report: Annotated[
        Path | None, option(_SHOP, "Write all differences to this file, as JSON lines or *.csv.", metavar="FILE")
    ] = None,
    metrics: Annotated[
        Path | None, option(_SHOP, "Write metrics to this file, for Prometheus' text file collector.", metavar="FILE")
    ] = None,
    no_unexpected: Annotated[
        bool,
        option(_SHOP, "The list is incomplete: do not report stored orders that it leaves out.", "--no-unexpected"),
    ] = False,
    file: ListFile = None,
    column: ListColumn = None,
    file_format: ListFormat = None,
    complete: Annotated[
        bool,
        option(
            _IDS,
            "The list contains all orders ever accepted: report others as unexpected.",
            "--complete",
        ),
    ] = False,
    missing: Annotated[
        str | None,
        typer.Option(
            help="Write the IDs of all missing orders to this file, one per line. `-` is stdout.", metavar="FILE"
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace files if they exist.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Report orders that are missing or differ.

    It compares them with the shop's list of a period, or with a list of order IDs.

    With --since, the list of the external API is compared with the queue and the stored orders. Otherwise, give a list of
    accepted orders. An ID of `-` reads IDs from stdin. Without --enqueue-missing or
    --enqueue-differing, nothing is changed.

    The report goes to stderr, or with --json to stdout.

    The exit code is 1 if an order is missing, outdated or unexpected, if its total differs, if it could not be compared, if a part of
    the list could not be read, or if a line of the list is not an order ID.

    Examples:
    `ingest reconcile --source shop-de --since 7d` compares the shop's list of the last week.

    `ingest reconcile --source shop-de --since 2d --enqueue-missing --metrics /var/lib/node_exporter/shop-de.prom`
    enqueues missing orders and writes metrics, for cron.

    `ingest reconcile --since 2026-10-01 --report differences.csv` writes all differences to a file.

    `ingest reconcile --file accepted.txt` reports where the orders on the list are: stored, dead letters, queued,
    or nowhere.

    `ingest reconcile --file accepted.txt --missing missing.txt` also writes the missing orders to a file, one ID
    per line.

    `ingest reconcile --file orders.csv --column order_no --missing - | ingest enqueue -` enqueues the missing
    orders again.

    `psql -Atc 'select no from orders' | ingest reconcile - --complete --json` prints JSON. The list is complete,
    so orders that are not on it are reported as unexpected.

    `ingest reconcile --source shop-de --file accepted.txt` compares the list with the orders of one source. With several
    sources, `--source` is required.

    The command may run while workers do. The list may be long: it is kept in a temporary file with up to 100 bytes
    per order, in the folder named by `SQLITE_TMPDIR`. Memory does not grow with it.
    """
    from ingest.cli.orders.id_sources.reconciling import STDOUT, print_report, reconcile_source
    from ingest.cli.orders.id_sources.sources import pick_source
    from ingest.operations.reconcile.enqueueing import DIFFERING, MISSING

    if missing == STDOUT and as_json:
        raise ConfigError("--missing - and --json both write to stdout: give --missing a file")
    if force and report is None and missing in {None, STDOUT}:
        raise ConfigError("--force requires --missing FILE or --report FILE")
    if since is not None:
        if ids:
            raise ConfigError("--since reads the shop's list: leave out the order IDs")
        refuse(context, "without --since", *_OF_IDS)
        raise typer.Exit(
            _reconcile_shop(
                source,
                (since, until),
                has_unexpected=not no_unexpected,
                enqueue=DIFFERING if enqueue_differing else MISSING if enqueue_missing else (),
                report=report,
                metrics=metrics,
                missing=missing,
                force=force,
                as_json=as_json,
            )
        )
    require(context, "--since", *_OF_SHOP)
    backends = backends_of_source(source)
    listed = pick_source(ids or [], file, None, column, file_format, usage=_SOURCES)
    found, invalid = run_interruptible(reconcile_source(backends, listed, missing, complete=complete, replace=force))
    print_report(found, backends.source, invalid, missing, as_json=as_json)
    raise typer.Exit(0 if found.is_clean and not invalid else 1)


def _reconcile_shop(
    source: Sequence[str] | None, period: tuple[str, str | None], *, as_json: bool, **options: Any
) -> int:
    """Reconcile the shop's list, and return the exit code."""
    from ingest.cli.orders.reconciling_list import ListOptions, print_list_report, reconcile_shop
    from ingest.services.tracing import traced

    chosen = ListOptions(*parse_listed_period(*period), **options)
    settings = start_with_source(source)
    report = run_interruptible(traced(settings, "reconcile", partial(reconcile_shop, settings, chosen)))
    print_list_report(report, settings.source, chosen, as_json=as_json)
    return 0 if report.is_clean else 1
