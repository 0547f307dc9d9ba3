"""`ingest order refetch`: has orders fetched again."""

import json

import typer

from ingest.cli.invocation import actor, backends_of_source
from ingest.cli.options import AsJson, OneSource, OrderIds, parse_ids
from ingest.cli.terminal.text import counted
from ingest.process.interrupt import run_interruptible


def refetch(ids: OrderIds, *, source: OneSource = None, as_json: AsJson = False) -> None:
    """Fetch orders again, whatever their version.

    Use it when a stored version is wrong, such as an `updated_at` in the future that keeps every later document out. The orders are
    enqueued in the express lane, so that a worker has to run. The audit log records who did it.

    Examples:
    `ingest order refetch 536365` replaces a stored order by the external API's current one, even if its version is
    older.

    `ingest order refetch 536365 --source shop-de` fetches an order of one source. With several sources, `--source`
    is required.

    `ingest order refetch --json 536365 536366` prints JSON.
    """
    from ingest.operations.refetch import refetch as run

    order_ids = parse_ids(ids)
    backends = backends_of_source(source)
    stored = run_interruptible(run(backends, order_ids, actor()))
    if as_json:
        typer.echo(json.dumps({"source": backends.source, "enqueued": order_ids, "stored": stored}))
    else:
        typer.echo(f"enqueued {counted(len(order_ids), 'order')}, of which {stored:,} had a version that is reset")
