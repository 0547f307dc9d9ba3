"""`ingest reconcile`: whether any accepted order is missing, and which."""

from typing import Annotated

import typer

EPILOG = """
Examples:

`ingest reconcile --file accepted.txt` says where the orders on the list are: stored, dead letters, on the way, or nowhere.

`ingest reconcile --file accepted.txt --missing missing.txt` names all those that are nowhere in a file, one a line.

`ingest reconcile --file orders.csv --column order_no --missing - | ingest enqueue -` announces them again.

`psql -Atc 'select no from orders' | ingest reconcile - --complete --json` is for scripts. The list has all orders there ever
were, so others are reported, too.

It changes nothing, and may run while workers do. The list may be long: it is kept in a temporary file, up to 100 bytes an
order (`SQLITE_TMPDIR` says in which folder), and memory does not grow with it.
"""


def reconcile(
    ids: Annotated[list[str] | None, typer.Argument(help="Order IDs; `-` reads stdin.", metavar="ID")] = None,
    *,
    file: Annotated[str | None, typer.Option(help="Read IDs from a file; `-` is stdin.", metavar="PATH")] = None,
    column: Annotated[str | None, typer.Option(help="The CSV column or JSONL member that holds the ID.")] = None,
    file_format: Annotated[
        str | None,
        typer.Option("--format", help="lines, csv or jsonl; by default what the file's name says.", metavar="FORMAT"),
    ] = None,
    complete: Annotated[
        bool, typer.Option("--complete", help="The list has all orders ever accepted: report others as well.")
    ] = False,
    missing: Annotated[
        str | None,
        typer.Option(help="Write the IDs of all missing orders there, one a line; `-` is stdout.", metavar="FILE"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Tell where accepted orders are now, and which of them are missing. Changes nothing.

    The report goes to stderr, with --json to stdout.

    The exit code is 1 if an order is missing, with --complete also if there are orders that are not on the list, and if a line
    of the list is no order ID.
    """
    import asyncio

    from ingest.cli.common import start
    from ingest.cli.reconciling import reconcile_source, report, require_fitting
    from ingest.cli.sources import pick_source

    require_fitting(missing, force=force, as_json=as_json)
    settings = start()
    source = pick_source(ids or [], file, None, column, file_format)
    found = asyncio.run(reconcile_source(settings, source, missing, complete=complete, replace=force))
    report(found, missing, as_json=as_json)
    raise typer.Exit(0 if found.is_sound else 1)
