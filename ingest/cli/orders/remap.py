"""`ingest remap`: applies the mapping and the transform to stored documents again."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from ingest.cli.invocation import actor, reader, say, start_with_source
from ingest.cli.options import TIME, OneSource, parse_ids, parse_period
from ingest.cli.orders.differing_fields import print_fields
from ingest.cli.orders.filter_options import selecting
from ingest.cli.terminal.text import counted, printable
from ingest.domain.errors import ConfigError
from ingest.domain.orders.order_filter import OrderFilter
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.rebuilding.remap_report import RemapReport
    from ingest.settings import Settings
    from ingest.store.orders.documents import DocumentSelection


@selecting
def remap(
    ids: Annotated[list[str] | None, typer.Argument(help="Only these orders.", metavar="ID", hidden=True)] = None,
    *,
    selection: OrderFilter,
    source: OneSource = None,
    since: Annotated[str | None, typer.Option(help=f"Fetched at this time or later. {TIME}", metavar="TIME")] = None,
    until: Annotated[str | None, typer.Option(help=f"Fetched before this time. {TIME}", metavar="TIME")] = None,
    after: Annotated[str | None, typer.Option(help="Only orders with an ID after this one.", metavar="ID")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the number of orders and fields that would change.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Apply the mapping to stored documents again.

    It applies the transform as well, and sends no request to the external API.

    With IDs, only these orders.

    This needs documents that workers have kept (INGEST_KEEP_DOCUMENT), and applies INGEST_MAPPING and INGEST_TRANSFORM as they
    are now. Orders that were erased stay erased. Rows whose document yields no order today stay as they are.

    The report goes to stderr, or with --json to stdout. The exit code is 1 if a document cannot be used.

    Examples:
    `ingest remap --dry-run` counts how many orders the current mapping and transform would change, by field.

    `ingest remap` changes them.

    `ingest remap 536365 536366` changes two orders.

    `ingest remap --since 7d` changes those fetched within a week.

    `ingest remap --stored-between 3h 2h` changes those that were stored within an hour, in which another mapping was used.

    `ingest remap --after 540120` continues where an interrupted run has ended. That run prints the ID.

    `ingest remap --source shop-de` changes the orders of one source. With several sources, `--source` is required.

    The command may run while workers do, and may be repeated. An order that a worker stores in that time is newer,
    and stays.
    """
    from ingest.operations.rebuilding.remap_report import RemapReport
    from ingest.store.orders.documents import DocumentSelection

    if after is not None and selection.is_by_time:
        raise ConfigError("--after is the ID of an order, and --stored-between lists orders by time: choose one")
    orders = msgspec.structs.replace(selection, ids=tuple(parse_ids(ids or [])))
    chosen = DocumentSelection(orders, *parse_period(since, until))
    report = RemapReport(last=None if after is None else parse_ids([after])[0])
    settings = start_with_source(source)
    has_options = bool(not orders.is_everything or source or since or until or dry_run)
    with _resumable(report, has_options=has_options, by_time=orders.is_by_time):
        run_interruptible(_run(settings, chosen, report, dry_run=dry_run))
    if as_json:
        counts = asdict(report) | {"fields": msgspec.to_builtins(report.fields.changed())}
        typer.echo(json.dumps({"source": settings.source} | counts | {"dry_run": dry_run}))
    else:
        _print(report, dry_run=dry_run)
    raise typer.Exit(1 if report.failed else 0)


@contextmanager
def _resumable(report: "RemapReport", *, has_options: bool, by_time: bool) -> Iterator[None]:
    """Print where to continue if it ends early."""
    try:
        yield
    except BaseException:
        if report.examined and by_time:
            say(f"{counted(report.examined, 'order')} done; run it again with the same options")
        elif report.examined:
            # Without its selection, or without --dry-run, it would change other orders.
            how = "the same options and" if has_options else "ingest remap"
            say(f"{counted(report.examined, 'order')} done; go on with: {how} --after {report.last}")
        raise


async def _run(settings: "Settings", selection: "DocumentSelection", report: "RemapReport", *, dry_run: bool) -> None:
    from ingest.cli.terminal.progress import ProgressDisplay
    from ingest.operations.audit import record_read_of
    from ingest.operations.backends import Backends
    from ingest.operations.declared import READ_DOCUMENT
    from ingest.operations.rebuilding.remap import remap as run
    from ingest.operations.rebuilding.remapping import recorded_selection, remap_orders
    from ingest.sources.documents import identify_of, mapping_of, open_decode
    from ingest.sources.from_settings import transform_of
    from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics

    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    dsn = settings.postgres_dsn.get_secret_value()
    mapping = mapping_of(settings)
    async with open_decode(mapping, transform_of(settings), metrics) as decode:
        with ProgressDisplay("remapping") as display:
            options: Any = {
                "identify": identify_of(mapping),
                "on_progress": display.update,
                "on_locked": lambda after: display.say(
                    "waiting for another transaction, which has locked the table or one of the next orders"
                    + (f" after {after}" if after else "")
                ),
            }
            if dry_run:
                recorded = recorded_selection(selection)
                await record_read_of([Backends.of(settings)], reader("remap --dry-run"), READ_DOCUMENT, recorded)
                await run(dsn, settings.source, decode, selection, report, dry_run=True, **options)
            else:
                await remap_orders(Backends.of(settings), decode, selection, report, actor(), **options)


def _print(report: "RemapReport", *, dry_run: bool) -> None:
    for failure in report.failures:
        say(f"{failure.order_id}: {failure.reason}: {printable(failure.error, 200)}")
    if report.failed > len(report.failures):
        say(f"and {report.failed - len(report.failures):,} more")
    parts = {
        "would be changed" if dry_run else "changed": report.changed,
        "unchanged": report.unchanged,
        "would be new" if dry_run else "new": report.inserted,
        "skipped": report.skipped,
        "stored again": report.newer,
        "failed": report.failed,
    }
    told = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    say(f"{counted(report.examined, 'order')} with a document" + (f": {told}" if told else ""))
    if dry_run:
        print_fields(report.fields, say)
