"""`ingest retries list`: lists the orders that wait for their next attempt, the soonest first."""

from functools import partial

import typer

from ingest.cli.invocation import backends_of_sources
from ingest.cli.options import AsJson, Limit
from ingest.cli.queues.criteria import Chosen, selecting
from ingest.domain.deliveries.entry_kind import EntryKind


@selecting(EntryKind.RETRIES)
def list_(chosen: Chosen, *, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List orders that will be retried, the soonest first.

    It changes nothing.

    The exit code is 1 if an order has no retry, or if a partition cannot be read.

    Examples:
    `ingest retries list` lists the next 50.

    `ingest retries list --reason http_status` lists the orders whose last response was an error.

    `ingest retries list --source shop-de` lists one source. Without `--source`, it lists all sources.

    `ingest retries list --json --limit 1000 | jq -r .order_id` prints their orders. With `--json`, each line is a
    JSON object.
    """
    from ingest.cli.listing import say_more
    from ingest.cli.queues.entry_lists import RETRIES, say_missing, unavailable_lines
    from ingest.cli.terminal.output import standard_output
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.operations.failed_orders.retries import find

    sources = [*backends_of_sources(chosen.sources).values()]
    found = run_with_progress("searching", partial(find, sources, chosen.selection, limit=limit))
    say_missing(EntryKind.RETRIES, found.missing, found.unavailable)
    RETRIES.show(found.entries, as_json=as_json, is_complete=not found.unavailable)
    if as_json:
        with standard_output() as stream:
            stream.writelines(unavailable_lines(found.unavailable))
    if found.has_more:
        say_more(limit)
    raise typer.Exit(1 if found.missing or found.unavailable else 0)
