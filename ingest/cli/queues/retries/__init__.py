"""`ingest retries`: lists, runs and dead-letters orders that wait for their next attempt."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import actor
from ingest.cli.options import (
    TIME,
    AsJson,
    Changing,
    DryRun,
    SourcesToChange,
    Yes,
    parse_period,
    taking,
)
from ingest.cli.queues.criteria import Attributes, Rate, Shape, Text, filter_of
from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.deliveries.entry_filter import EntryFilter
from ingest.domain.deliveries.retry_selection import RetrySelection
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from redis.asyncio import Redis

    from ingest.domain.operating.jobs import JobRequest
    from ingest.operations.backends import Backends

COMMANDS = ("list", "groups", "run-now", "dead-letter")

Ids = Annotated[list[str] | None, typer.Argument(help="Order ID.", metavar="ID", hidden=True)]
Reasons = Annotated[
    list[RetryReason] | None,
    typer.Option(
        "--reason", help=f"Retried for this reason. Repeatable. One of {', '.join(RetryReason)}.", metavar="REASON"
    ),
]
Since = Annotated[str | None, typer.Option(help=f"First enqueued at this time or later. {TIME}", metavar="TIME")]
Until = Annotated[str | None, typer.Option(help=f"First enqueued before this time. {TIME}", metavar="TIME")]
Everything = Annotated[bool, typer.Option("--all", help="All retries.")]


def retries() -> None:
    """List, run or dead-letter orders that will be retried.

    Examples:
    `ingest retries list` lists the orders that wait for their next attempt, the soonest first, and why.

    `ingest retries run-now --reason timeout` makes their next attempt due now.

    `ingest retries dead-letter 536365` moves an order to the dead letters.

    Run `ingest retries run-now --help` for the help of a command.
    """


def _changing(  # noqa: PLR0913  the options of a command
    ids: Ids = None,
    *,
    source: SourcesToChange = None,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    shape: Shape = None,
    attribute: Attributes = None,
    everything: Everything = False,
    rate: Rate = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> Changing:
    """The options of the commands that change something: criteria or `--all` are required."""
    selection = selection_or_all(ids, reason, parse_period(since, until), filter_of(text, shape, attribute))
    if selection.everything and not everything:
        raise ConfigError("choose retries by order IDs, --reason or another criterion, or all of them with --all")
    if everything and not selection.everything:
        raise ConfigError("--all selects every retry: use it without IDs and other criteria")
    return Changing(selection, source, dry_run, yes, as_json, rate)


@taking(_changing)
def run_now(options: Changing) -> None:
    """Make the next attempt of orders due now.

    Attempts count as before. Workers read the orders within two seconds.

    The exit code is 1 if an order has no retry. All others are changed.

    Examples:
    `ingest retries run-now 536365` makes the next attempt for one order due now.

    `ingest retries run-now --reason timeout --dry-run` counts them, and changes nothing.

    `ingest retries run-now --all --yes` runs all of them, for example when the external API works again.
    """
    from ingest.operations.failed_orders import retries

    words = {"verb": "run", "done": "running", "key": "running", "end": " now"}
    raise typer.Exit(_change(words, retries.run_now, options, "retries.run_now"))


@taking(_changing)
def dead_letter(options: Changing) -> None:
    """Move orders that will be retried to the dead letters.

    Their reason is attempts_exhausted.

    The exit code is 1 if an order has no retry. All others are changed.

    Examples:
    `ingest retries dead-letter 536365` moves one order to the dead letters.

    `ingest retries dead-letter --reason http_status --yes` moves all orders whose last response was an error.

    `ingest dead replay 536365` puts it back into the queue.
    """
    from ingest.operations.failed_orders import retries

    words = {"verb": "dead-letter", "done": "dead-lettered", "key": "dead_lettered"}
    apply = partial(retries.dead_letter, actor=actor())
    raise typer.Exit(_change(words, apply, options, "retries.dead_letter"))


def selection_or_all(
    ids: Sequence[str] | None,
    reasons: Sequence[RetryReason] | None,
    period: tuple[datetime | None, datetime | None],
    criteria: EntryFilter,
) -> RetrySelection:
    """Everything, unless there are criteria."""
    chosen = frozenset(reason.value for reason in reasons or ())
    return RetrySelection(
        frozenset(ids or ()), chosen, not (ids or reasons or any(period) or criteria), *period, criteria
    )


def _change(words: dict[str, str], apply: Callable[..., Any], options: Changing, kind: str) -> int:
    """Make the change `apply` of `ingest.operations.failed_orders.retries`, without IDs as a job of a kind. Return the exit code."""
    from ingest.cli.queues.action import Action, applied, carry_out
    from ingest.cli.queues.bulk import change_directly
    from ingest.domain.operating.jobs import JobKind
    from ingest.operations.failed_orders.retries import survey
    from ingest.operations.jobs.requests import retry_request
    from ingest.queue.operate.partition_retries import PAGE
    from ingest.queue.operate.queue_parts import layout_reader
    from ingest.queue.operate.retries import Retries

    async def apply_to(backends: "Backends", found: Any, on_progress: Any, on_wait: Callable[[str], None]) -> int:
        async def request(client: "Redis") -> "JobRequest":
            waiting = Retries(client, layout_reader(client, backends.stream), backends.group)
            return await retry_request(waiting, JobKind(kind), options.selection, total=found.count, rate=options.rate)

        async def directly() -> int:
            changed: int = await apply(backends, found, on_progress=lambda done: on_progress(done, done))
            return changed

        if ids := options.selection.ids:
            return await change_directly(backends, JobKind(kind), ids, directly, on_wait)
        return await applied(backends, request, directly, on_progress, on_wait)

    action = Action(
        **words,
        noun="retry",
        nouns="retries",
        page=PAGE,
        survey=lambda backends, display: survey(backends, options.selection, on_progress=display.update),
        apply=apply_to,
    )
    return carry_out(action, options)
