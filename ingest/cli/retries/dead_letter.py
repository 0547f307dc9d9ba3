"""`ingest retries dead-letter`: moves orders that wait for their next attempt to the dead letters."""

import typer

from ingest.cli.retries.options import AsJson, DryRun, Everything, Ids, Reasons, Yes, required_selection


def dead_letter(
    ids: Ids = None,
    *,
    reason: Reasons = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Move orders that wait for their next attempt to the dead letters, with the reason attempts_exhausted.

    The exit code is 1 if an order has no retry. All others are changed.

    Examples:
    `ingest retries dead-letter 536365` moves one order to the dead letters.

    `ingest retries dead-letter --reason http_status --yes` moves all for which the external API answers with an error.

    `ingest dead replay 536365` puts it back into the queue.
    """
    from ingest.cli.common import start
    from ingest.cli.retries.change import Action, carry_out
    from ingest.cli.terminal.user import actor
    from ingest.operations import retries
    from ingest.operations.backends import Backends

    selection = required_selection(ids, reason, everything=everything)
    action = Action(
        "dead-letter",
        "dead-lettered",
        "dead_lettered",
        lambda backends, found, on_progress: retries.dead_letter(backends, found, actor(), on_progress=on_progress),
    )
    backends = Backends.of(start())
    raise typer.Exit(carry_out(backends, action, selection, dry_run=dry_run, yes=yes, as_json=as_json))
