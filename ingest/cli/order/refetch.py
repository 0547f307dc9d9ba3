"""`ingest order refetch`: has orders fetched and stored again, whatever their version."""

import json
from typing import Annotated

import typer

from ingest.cli.order.ids import Ids, parse_ids
from ingest.process.interrupt import run_interruptible


def refetch(
    ids: Ids,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Fetch orders again, and store them whatever version they have.

    Use it when a stored version is wrong, such as an `updated_at` in the future that keeps every later document out. The orders are
    enqueued in the express lane, so that a worker has to run. The audit log records who did it.

    Examples:
    `ingest order refetch 536365` replaces a stored order by the external API's current one, even if its version is
    older.

    `ingest order refetch --json 536365 536366` is for scripts.
    """
    from ingest.cli.common import start
    from ingest.cli.terminal.text import counted
    from ingest.cli.terminal.user import actor
    from ingest.operations.backends import Backends
    from ingest.operations.refetch import refetch as run

    order_ids = parse_ids(ids)
    stored = run_interruptible(run(Backends.of(start()), order_ids, actor()))
    if as_json:
        typer.echo(json.dumps({"enqueued": order_ids, "stored": stored}))
    else:
        typer.echo(f"enqueued {counted(len(order_ids), 'order')}, of which {stored:,} had a version that is reset")
