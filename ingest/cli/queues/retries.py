"""`ingest retries`: lists, runs and dead-letters orders that wait for their next attempt."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import actor, backends_of_sources, say
from ingest.cli.options import AsJson, Changing, DryRun, Limit, Sources, SourcesToChange, Yes, taking
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_time
from ingest.cli.terminal.width import Table, width_of
from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.errors import ConfigError
from ingest.domain.source_name import UNNAMED

if TYPE_CHECKING:
    from ingest.domain.orders.order_state import RetryEntry

COMMANDS = ("list", "run-now", "dead-letter")

Ids = Annotated[list[str] | None, typer.Argument(help="Order ID.", metavar="ID", hidden=True)]
Reasons = Annotated[
    list[RetryReason] | None,
    typer.Option(
        "--reason", help=f"Retried for this reason. May be repeated. One of {', '.join(RetryReason)}.", metavar="REASON"
    ),
]
Everything = Annotated[bool, typer.Option("--all", help="All retries.")]

_TABLE = Table(("order", "next attempt", "attempt", "reason", "error"), names=1, facts=4)
_LONGEST_ERROR = 100


def retries() -> None:
    """List, run or dead-letter orders that will be retried.

    Examples:
    `ingest retries list` lists the orders that wait for their next attempt, the soonest first, and why.

    `ingest retries run-now --reason timeout` makes their next attempt due now.

    `ingest retries dead-letter 536365` moves an order to the dead letters.

    Run `ingest retries run-now --help` for the help of a command.
    """


def list_(
    ids: Ids = None,
    *,
    source: Sources = None,
    reason: Reasons = None,
    limit: Limit = 50,
    as_json: AsJson = False,
) -> None:
    """List orders that will be retried, the soonest first.

    It changes nothing.

    The exit code is 1 if an order has no retry.

    Examples:
    `ingest retries list` lists the next 50.

    `ingest retries list --reason http_status` lists those for which the external API has answered with an error.

    `ingest retries list --source shop-de` lists those of one source. Without `--source`, it lists all sources.

    `ingest retries list --json --limit 1000 | jq -r .order_id` prints their orders. With `--json`, each line is a
    JSON object.
    """
    from ingest.cli.terminal.progress import run_with_progress
    from ingest.operations.retries import as_object, find

    sources = backends_of_sources(source)
    search = partial(find, [*sources.values()], _selection(ids, reason), limit=limit)
    found = run_with_progress("searching", search)
    for missing in sorted(found.missing):
        say(f"no retry for {printable(missing)}")
    if as_json:
        with standard_output() as stream:
            stream.writelines(json.dumps(as_object(entry, source)) + "\n" for source, entry in found.entries)
    elif found.entries:
        _print_table(found.entries, with_source=UNNAMED not in sources)
    else:
        say("no retries")
    if found.has_more and not as_json:
        say(f"there are more than these {limit:,}: --limit lists more")
    raise typer.Exit(1 if found.missing else 0)


def _changing(
    ids: Ids = None,
    *,
    source: SourcesToChange = None,
    reason: Reasons = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> Changing:
    """The options of the commands that change something: criteria or `--all` are required."""
    if not (ids or reason or everything):
        raise ConfigError("choose retries by order IDs or --reason, or all of them with --all")
    if (ids or reason) and everything:
        raise ConfigError("--all selects every retry: use it without IDs and --reason")
    return Changing(_selection(ids, reason), source, dry_run, yes, as_json)


@taking(_changing)
def run_now(options: Changing) -> None:
    """Make the next attempt of orders due now.

    Attempts count as before. Workers read the orders within a second or two.

    The exit code is 1 if an order has no retry. All others are changed.

    Examples:
    `ingest retries run-now 536365` makes the next attempt for one order due now.

    `ingest retries run-now --reason timeout --dry-run` counts them, and changes nothing.

    `ingest retries run-now --all --yes` runs all of them, for example when the external API works again.
    """
    from ingest.operations import retries

    words = {"verb": "run", "done": "running", "key": "running", "end": " now"}
    raise typer.Exit(_change(words, retries.run_now, options))


@taking(_changing)
def dead_letter(options: Changing) -> None:
    """Move orders that will be retried to the dead letters.

    Their reason is attempts_exhausted.

    The exit code is 1 if an order has no retry. All others are changed.

    Examples:
    `ingest retries dead-letter 536365` moves one order to the dead letters.

    `ingest retries dead-letter --reason http_status --yes` moves all for which the external API answers with an error.

    `ingest dead replay 536365` puts it back into the queue.
    """
    from ingest.operations import retries

    words = {"verb": "dead-letter", "done": "dead-lettered", "key": "dead_lettered"}
    apply = partial(retries.dead_letter, actor=actor())
    raise typer.Exit(_change(words, apply, options))


def _selection(ids: Sequence[str] | None, reasons: Sequence[RetryReason] | None) -> RetrySelection:
    """Everything, unless there are criteria."""
    chosen = frozenset(reason.value for reason in reasons or ())
    return RetrySelection(frozenset(ids or ()), chosen, everything=not (ids or reasons))


def _change(words: dict[str, str], apply: Callable[..., Any], options: Changing) -> int:
    """Make the change `apply` of `ingest.operations.retries`. Return the exit code."""
    from ingest.cli.queues.action import Action, carry_out
    from ingest.operations.retries import survey
    from ingest.queue.operate.retries import PAGE

    action = Action(
        **words,
        noun="retry",
        nouns="retries",
        page=PAGE,
        survey=lambda backends, display: survey(backends, options.selection, on_progress=display.update),
        apply=lambda backends, found, on_progress, _: apply(
            backends, found, on_progress=lambda done: on_progress(done, done)
        ),
    )
    return carry_out(action, options)


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
    with standard_output() as stream:
        lines = table.lines(rows, [row[-1] for row in rows], width_of(stream))
        stream.writelines(line + "\n" for line in lines)
