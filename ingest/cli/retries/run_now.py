"""`ingest retries run-now`: makes the next attempt of orders due now."""

import typer

from ingest.cli.retries.options import AsJson, DryRun, Everything, Ids, Reasons, Yes, required_selection


def run_now(
    ids: Ids = None,
    *,
    reason: Reasons = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make the next attempt of orders due now. Attempts count as before. Workers read the orders within a second or two.

    The exit code is 1 if an order has no retry. All others are changed.

    Examples:
    `ingest retries run-now 536365` makes the next attempt for one order due now.

    `ingest retries run-now --reason timeout --dry-run` counts them, and changes nothing.

    `ingest retries run-now --all --yes` runs all of them, for example when the external API works again.
    """
    from ingest.cli.common import start
    from ingest.cli.retries.change import Action, carry_out
    from ingest.operations import retries
    from ingest.operations.backends import Backends

    selection = required_selection(ids, reason, everything=everything)
    action = Action(
        "run",
        "running",
        "running",
        lambda backends, found, on_progress: retries.run_now(backends, found, on_progress=on_progress),
        " now",
    )
    backends = Backends.of(start())
    raise typer.Exit(carry_out(backends, action, selection, dry_run=dry_run, yes=yes, as_json=as_json))
