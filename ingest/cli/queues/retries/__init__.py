"""`ingest retries`: lists, runs and dead-letters orders that wait for their next attempt."""

from ingest.cli.options import Changing
from ingest.cli.queues.criteria import changing
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
