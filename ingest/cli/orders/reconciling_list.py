"""Reconciles the shop's list with progress, and writes the report, the metrics and the differences."""

import csv
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import typer

from ingest.cli.invocation import actor, say
from ingest.cli.orders.id_sources.reconciling import missing_orders
from ingest.cli.terminal.output import new_file
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted, printable
from ingest.cli.terminal.times import format_time
from ingest.domain.errors import Fault, UserError
from ingest.domain.orders.list_reconciliation import Difference, DifferenceKind, ListReconciliation
from ingest.domain.printable import cell
from ingest.operations.backends import Backends
from ingest.operations.reconcile.enqueueing import enqueue_differing
from ingest.operations.reconcile.list_ledger import ListLedger
from ingest.operations.reconcile.list_metrics import metrics_of
from ingest.operations.reconcile.listed import Listing, Progress, reconcile_list
from ingest.operations.reconcile.scan import open_places
from ingest.sources.list_opening import open_order_list

if TYPE_CHECKING:
    from datetime import datetime

    from ingest.settings import Settings

# The columns before a note in the report.
_BELOW_NOTES = " " * 30
_CSV_COLUMNS = (
    "source",
    "order_id",
    "difference",
    "listed_at",
    "stored_at",
    "total_difference",
    "listed_total",
    "stored_total",
)
# The metrics are for the collector, which runs as another user, and contain no customer data.
_FOR_ALL = 0o644


@dataclass(frozen=True, slots=True)
class ListOptions:
    """The options of a reconciliation with the shop's list.

    Attributes:
        has_unexpected: whether to look for orders that are stored and not listed.
        enqueue: the kinds of differences whose orders are enqueued.
        report: the file for all differences.
        metrics: the file for metrics.
        missing: the file for the IDs of missing orders. `-` is stdout.
        force: whether to replace the files, except the file of the metrics, which is always replaced.
    """

    since: "datetime"
    until: "datetime | None"
    has_unexpected: bool
    enqueue: Sequence[DifferenceKind]
    report: Path | None
    metrics: Path | None
    missing: str | None
    force: bool


async def reconcile_shop(settings: "Settings", options: ListOptions) -> ListReconciliation:
    """Reconcile the shop's list, and write the files."""
    servers = Backends.of(settings)
    with ListLedger.open() as ledger, ExitStack() as files:
        # Before the list is read, which may take long, so that a file that cannot be written is reported immediately.
        on_missing = files.enter_context(missing_orders(options.missing, replace=options.force))
        report_file = None
        if options.report is not None:
            report_file = files.enter_context(new_file(options.report, replace=options.force))
        async with open_order_list(settings, os.environ) as listed:
            listing = Listing(listed, options.since, options.until, is_complete=options.has_unexpected)
            try:
                report = await _with_progress(listing, servers, ledger)
            except Fault as error:
                raise UserError(f"the shop's list cannot be read: {error}") from error
        if on_missing is not None:
            for difference in ledger.differences([DifferenceKind.MISSING]):
                on_missing(difference.order_id)
        if options.report is not None and report_file is not None:
            write = _write_csv if options.report.suffix.lower() == ".csv" else _write_json_lines
            write(report_file, settings.source, ledger.differences())
        files.close()
        if sum(report.differences[kind] for kind in options.enqueue):
            report = replace(report, enqueued=await _enqueue(servers, ledger, report, options.enqueue))
        if options.metrics is not None:
            with new_file(options.metrics, replace=True, mode=_FOR_ALL) as stream:
                stream.write(metrics_of(report, settings.source))
    return report


def print_list_report(report: ListReconciliation, source: str, options: ListOptions, *, as_json: bool) -> None:
    """Print the report, on stderr for the terminal and on stdout for scripts."""
    if as_json:
        typer.echo(json.dumps({"source": source} | report.as_dict(), default=format_time))
        return
    if source:
        say(f"source          {printable(source)}")
    say(f"period          {format_time(report.since)} to {format_time(report.until)}")
    for line in str(report).split("\n"):
        say(printable(line), _BELOW_NOTES)
    if options.enqueue:
        say(f"enqueued {counted(report.enqueued, 'order')}")
    elif report.missing.count or report.outdated.count:
        say("--enqueue-missing enqueues the missing and the outdated orders")
    elif report.total.count or report.not_compared.count:
        say("--enqueue-differing fetches the orders that differ or could not be compared again")
    if options.report is not None:
        say(f"{counted(sum(report.differences.values()), 'difference')} in {options.report}")


async def _with_progress(listing: Listing, servers: Backends, ledger: ListLedger) -> ListReconciliation:
    with ExitStack() as stack:
        display = stack.enter_context(ProgressDisplay("reading the list"))
        scanning: ProgressDisplay | None = None

        def on_scan(done: int, total: int) -> None:
            nonlocal scanning, display
            if scanning is None:
                stack.close()
                scanning = display = stack.enter_context(ProgressDisplay("searching"))
            scanning.update(done, total)

        progress = Progress(display.update, on_scan, lambda why: display.say(f"waiting: {why}"))
        return await reconcile_list(listing, partial(open_places, servers), ledger, progress)


async def _enqueue(
    servers: Backends, ledger: ListLedger, report: ListReconciliation, kinds: Sequence[DifferenceKind]
) -> int:
    with ProgressDisplay("enqueueing", sum(report.differences[kind] for kind in kinds)) as display:
        return await enqueue_differing(servers, ledger, report, actor(), kinds, on_progress=display.update)


def _write_json_lines(stream: IO[str], source: str, differences: Iterator[Difference]) -> None:
    for difference in differences:
        stream.write(json.dumps(_facts(difference, source)) + "\n")


def _write_csv(stream: IO[str], source: str, differences: Iterator[Difference]) -> None:
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for difference in differences:
        facts = _facts(difference, source)
        writer.writerow([cell(facts[name]) for name in _CSV_COLUMNS])


def _facts(difference: Difference, source: str) -> dict[str, Any]:
    facts = {"source": source} | difference.as_dict()
    return {name: format_time(value) if hasattr(value, "tzinfo") else value for name, value in facts.items()}
