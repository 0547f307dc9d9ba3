"""`ingest retries list`: lists the orders that wait for their next attempt, the soonest first."""

import json
from functools import partial
from typing import TYPE_CHECKING

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.options import AsJson, Limit
from ingest.cli.queues.criteria import Chosen, selecting
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_time
from ingest.cli.terminal.width import Table, print_table
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.source_name import UNNAMED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.orders.order_state import RetryEntry

_TABLE = Table(("order", "next attempt", "attempt", "reason", "error"), names=1, facts=4)
_LONGEST_ERROR = 100


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
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.operations.failed_orders.entry_json import listed_as_object
    from ingest.operations.failed_orders.retries import find

    sources = backends_of_sources(chosen.sources)
    search = partial(find, [*sources.values()], chosen.selection, limit=limit)
    found = run_with_progress("searching", search)
    for missing in sorted(found.missing):
        say(f"no retry for {printable(missing)}")
    for (_, queue), error in found.unavailable.items():
        say(f"the retries of {queue} are missing: {error}")
    if as_json:
        with standard_output() as stream:
            stream.writelines(json.dumps(listed_as_object(entry, source)) + "\n" for source, entry in found.entries)
            for (source, queue), error in found.unavailable.items():
                stream.write(json.dumps({"source": source, "queue": queue, "unavailable": error}) + "\n")
    elif found.entries:
        _print_table(found.entries, with_source=UNNAMED not in sources)
    elif not found.unavailable:
        say("no retries")
    if found.has_more and not as_json:
        say(f"there are more than these {limit:,}: --limit lists more")
    raise typer.Exit(1 if found.missing or found.unavailable else 0)


def _print_table(entries: "Sequence[tuple[str, RetryEntry]]", *, with_source: bool) -> None:
    rows = [
        (
            *([source] if with_source else ()),
            printable(entry.order_id or "-", 128),
            format_time(entry.next_try_at),
            str(entry.attempt),
            printable(entry.reason, 64),
            printable(entry.error, _LONGEST_ERROR),
        )
        for source, entry in entries
    ]
    table = _TABLE.with_column("source") if with_source else _TABLE
    print_table(table, rows, [row[-1] for row in rows])
