"""`ingest retries run-now`: lets the next attempt of orders be now."""

import typer

from ingest.cli.retries.options import AsJson, DryRun, Everything, Ids, Reasons, Yes, required_selection

EPILOG = """
Examples:

`ingest retries run-now 536365` lets the next attempt at one order be now.

`ingest retries run-now --reason timeout --dry-run` counts them, and changes nothing.

`ingest retries run-now --all --yes` runs all of them, for example after an error of the external API is put right.
"""


def run_now(
    ids: Ids = None,
    *,
    reason: Reasons = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Let the next attempt of orders be now. Attempts count as before; workers read them within a second or two."""
    from ingest.cli.common import start
    from ingest.cli.retries.change import Action, carry_out
    from ingest.operations import retries
    from ingest.operations.backends import Backends

    selection = required_selection(ids, reason, everything=everything)
    action = Action(
        "run",
        "running",
        "running",
        lambda backends, chosen, on_progress: retries.run_now(backends, chosen, on_progress=on_progress),
        " now",
    )
    backends = Backends.of(start())
    raise typer.Exit(carry_out(backends, action, selection, dry_run=dry_run, yes=yes, as_json=as_json))
