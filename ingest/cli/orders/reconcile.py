"""`ingest reconcile`: reports where accepted orders are, and which are missing."""

from typing import Annotated

import typer

from ingest.cli.invocation import backends_of_source
from ingest.cli.options import ListColumn, ListedIds, ListFile, ListFormat, OneSource
from ingest.domain.errors import ConfigError
from ingest.process.interrupt import run_interruptible

_SOURCES = "order IDs or --file (`-` for stdin): see `ingest reconcile --help`"


def reconcile(
    ids: ListedIds = None,
    *,
    source: OneSource = None,
    file: ListFile = None,
    column: ListColumn = None,
    file_format: ListFormat = None,
    complete: Annotated[
        bool,
        typer.Option("--complete", help="The list contains all orders ever accepted: report others as unexpected."),
    ] = False,
    missing: Annotated[
        str | None,
        typer.Option(
            help="Write the IDs of all missing orders to this file, one per line. `-` is stdout.", metavar="FILE"
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Report where accepted orders are now, and which of them are missing. Changes nothing.

    An ID of `-` reads IDs from stdin.

    The report goes to stderr, or with --json to stdout.

    The exit code is 1 if an order is missing, if a line of the list is not an order ID, and with --complete also if there
    are orders that are not on the list.

    Examples:
    `ingest reconcile --file accepted.txt` reports where the orders on the list are: stored, dead letters, queued,
    or nowhere.

    `ingest reconcile --file accepted.txt --missing missing.txt` also writes the missing orders to a file, one ID
    per line.

    `ingest reconcile --file orders.csv --column order_no --missing - | ingest enqueue -` announces the missing
    orders again.

    `psql -Atc 'select no from orders' | ingest reconcile - --complete --json` is for scripts. The list is complete,
    so orders that are not on it are reported as unexpected.

    `ingest reconcile --source shop-de --file accepted.txt` compares the list with the orders of one source. With several
    sources, `--source` is required.

    The command may run while workers do. The list may be long: it is kept in a temporary file with up to 100 bytes
    per order, in the folder named by `SQLITE_TMPDIR`. Memory does not grow with it.
    """
    from ingest.cli.orders.id_sources.reconciling import STDOUT, print_report, reconcile_source
    from ingest.cli.orders.id_sources.sources import pick_source

    if missing == STDOUT and as_json:
        raise ConfigError("--missing - and --json both write to stdout: give --missing a file")
    if force and missing in {None, STDOUT}:
        raise ConfigError("--force requires --missing FILE")
    backends = backends_of_source(source)
    listed = pick_source(ids or [], file, None, column, file_format, usage=_SOURCES)
    report, invalid = run_interruptible(reconcile_source(backends, listed, missing, complete=complete, replace=force))
    print_report(report, backends.source, invalid, missing, as_json=as_json)
    raise typer.Exit(0 if report.is_clean and not invalid else 1)
