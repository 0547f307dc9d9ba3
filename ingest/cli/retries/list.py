"""`ingest retries list`: lists orders that wait for their next attempt, the soonest first."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.retries.options import AsJson, Ids, Reasons, report_missing, selection_or_all
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.deliveries.retry_selection import RetrySelection
    from ingest.domain.orders.order_state import RetryEntry
    from ingest.operations.backends import Backends
    from ingest.operations.retries import FoundRetries

_LONGEST_ERROR = 100


def list_(
    ids: Ids = None,
    *,
    reason: Reasons = None,
    limit: Annotated[int, typer.Option(help="List at most N.", min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List orders that wait for their next attempt, the soonest first. Changes nothing.

    The exit code is 1 if an order has no retry.

    Examples:
    `ingest retries list` lists the next 50.

    `ingest retries list --reason http_status` lists those for which the external API has answered with an error.

    `ingest retries list --json --limit 1000 | jq -r .order_id` is for scripts: one JSON object per line.
    """
    from ingest.cli.common import say, start
    from ingest.cli.terminal.output import standard_output
    from ingest.operations.backends import Backends
    from ingest.operations.retries import as_object

    backends = Backends.of(start())
    found = run_interruptible(_find(backends, selection_or_all(ids, reason), limit))
    report_missing(found.missing)
    if as_json:
        with standard_output() as stream:
            stream.writelines(json.dumps(as_object(entry)) + "\n" for entry in found.entries)
    elif found.entries:
        _print_table(found.entries)
    else:
        say("no retries")
    if found.has_more and not as_json:
        say(f"there are more than these {limit:,}: --limit lists more")
    raise typer.Exit(1 if found.missing else 0)


async def _find(backends: "Backends", selection: "RetrySelection", limit: int) -> "FoundRetries":
    from ingest.cli.terminal.progress import ProgressDisplay
    from ingest.operations.retries import find

    with ProgressDisplay("searching") as display:
        return await find(backends, selection, limit=limit, on_progress=display.update)


def _print_table(entries: "Sequence[RetryEntry]") -> None:
    from ingest.cli.terminal.output import standard_output
    from ingest.cli.terminal.text import printable
    from ingest.cli.terminal.times import format_time
    from ingest.cli.terminal.width import Table, width_of

    rows = [
        (
            printable(entry.order_id or "-", 64),
            format_time(entry.next_try_at),
            str(entry.attempt),
            printable(entry.reason, 64),
            printable(entry.error, _LONGEST_ERROR),
        )
        for entry in entries
    ]
    table = Table(("order", "next attempt", "attempt", "reason", "error"), names=1, facts=4)
    with standard_output() as stream:
        lines = table.lines(rows, [row[-1] for row in rows], width_of(stream))
        stream.writelines(line + "\n" for line in lines)
