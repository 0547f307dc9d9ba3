"""`ingest enqueue`: announces orders by their IDs."""

from functools import partial
from typing import Annotated

import typer

from ingest.cli.invocation import start_with_source
from ingest.cli.options import ListColumn, ListedIds, ListFile, ListFormat, OneSource
from ingest.process.interrupt import run_interruptible

_SOURCES = "order IDs, --file (`-` for stdin) or --sample: see `ingest enqueue --help`"


def enqueue(  # noqa: PLR0913  each parameter is one option
    ids: ListedIds = None,
    *,
    source: OneSource = None,
    file: ListFile = None,
    column: ListColumn = None,
    file_format: ListFormat = None,
    sample: Annotated[
        int | None, typer.Option(help="Enqueue this many sample orders, starting again after the last one.", min=1)
    ] = None,
    rate: Annotated[float | None, typer.Option(help="At most this many IDs per second.", min=0.1)] = None,
    express: Annotated[bool, typer.Option("--express", help="Into the lane that workers read first.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Enqueue order IDs.

    It returns when Redis has all of them.

    An ID of `-` reads IDs from stdin.

    It waits, with a message, while Redis is unavailable or out of memory, or the backlog is at INGEST_BACKLOG_LIMIT.

    Examples:
    `ingest enqueue 536365 536366` enqueues two orders.

    `ingest enqueue '#1001' -- -1002` quotes an ID for the shell. IDs that begin with `-` come after `--`.

    `ingest enqueue --file ids.txt` takes one ID per line, as text or as a JSON string. Empty lines are skipped.

    `ingest enqueue --file orders.csv --column order_no` takes a column of a CSV file with a header.

    `ingest enqueue --file orders.jsonl --column id` takes a member of each JSON object.

    `psql -Atc 'select no from orders' | ingest enqueue -` reads stdin. Add `--format csv` or `jsonl` for a column.

    `ingest enqueue --source shop-de 536365` enqueues an order of one of several sources.

    `ingest enqueue --express 536365` enqueues an urgent order, which workers read before the backlog.

    `ingest enqueue --sample 2000 --rate 50` enqueues sample orders of `ingest upstream` for 40 seconds.

    Invalid IDs are reported with their line numbers. All others are accepted, and the exit code is 1. If a file
    cannot be read any further (a quote that is not closed), the line is named, and everything before it is
    accepted. Announcing an order again is harmless: it is fetched again and stored once.
    """
    from ingest.cli.orders.id_sources.announce import announce
    from ingest.cli.orders.id_sources.found import UnreadableSource
    from ingest.cli.orders.id_sources.sources import IdSource, pick_source
    from ingest.services.tracing import traced

    settings = start_with_source(source)
    listed: IdSource = pick_source(ids or [], file, sample, column, file_format, usage=_SOURCES)
    work = partial(announce, settings, listed, quiet=quiet, rate=rate, express=express)
    result = run_interruptible(traced(settings, "enqueue", work))
    if as_json:
        typer.echo(result.as_json())
    else:
        typer.echo(result.as_line())
    if result.error:
        raise UnreadableSource(f"{result.error}; {result.accepted:,} accepted before it")
    raise typer.Exit(0 if result.complete else 1)
