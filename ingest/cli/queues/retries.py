"""`ingest retries`: lists, groups, runs and dead-letters orders that wait for their next attempt."""

from functools import partial

import typer

from ingest.cli.invocation import backends_of_sources
from ingest.cli.options import AsJson, Changing, Limit
from ingest.cli.queues.criteria import Chosen, changing, selecting
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.operating.jobs import JobKind

COMMANDS = ("list", "groups", "run-now", "dead-letter")


def retries() -> None:
    """List, run or dead-letter orders that will be retried.

    Examples:
    `ingest retries list` lists the orders that wait for their next attempt, the soonest first, and why.

    `ingest retries run-now --reason timeout` makes their next attempt due now.

    `ingest retries dead-letter 536365` moves an order to the dead letters.

    Run `ingest retries run-now --help` for the help of a command.
    """


@changing(EntryKind.RETRIES)
def run_now(options: Changing) -> None:
    """Make the next attempt of orders due now.

    Attempts count as before. Workers read the orders within two seconds.

    The exit code is 1 if an order has no retry. All others are changed.

    Examples:
    `ingest retries run-now 536365` makes the next attempt for one order due now.

    `ingest retries run-now --reason timeout --dry-run` counts them, and changes nothing.

    `ingest retries run-now --all --yes` runs all of them, for example when the external API works again.
    """
    from ingest.cli.queues.action import carry_out

    carry_out(JobKind.RUN_NOW, options)


@changing(EntryKind.RETRIES)
def dead_letter(options: Changing) -> None:
    """Move orders that will be retried to the dead letters.

    Their reason is attempts_exhausted.

    The exit code is 1 if an order has no retry. All others are changed.

    Examples:
    `ingest retries dead-letter 536365` moves one order to the dead letters.

    `ingest retries dead-letter --reason http_status --yes` moves all orders whose last response was an error.

    `ingest dead replay 536365` puts it back into the queue.
    """
    from ingest.cli.queues.action import carry_out

    carry_out(JobKind.DEAD_LETTER, options)


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


@selecting(EntryKind.RETRIES)
def groups(chosen: Chosen, *, as_json: AsJson = False) -> None:
    """Count retries by reason and error.

    The largest group comes first. Errors that differ only in numbers, IDs, times or quoted values are one group.

    The exit code is 1 if Redis cannot be used for a partition. The command groups the others, and reports the missing ones.

    Examples:
    `ingest retries groups` shows the errors because of which orders wait, each with how many orders it affects.

    `ingest retries run-now --shape "HTTP 503"` makes the next attempt of a whole group due now.
    """
    from ingest.cli.queues.entry_lists import print_groups

    print_groups(EntryKind.RETRIES, chosen, as_json=as_json)
