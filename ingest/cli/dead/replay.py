"""`ingest dead replay`: dead letters back into the queue."""

import typer

from ingest.cli.dead.options import AsJson, DryRun, Everything, Ids, Reasons, Since, Until, Yes

EPILOG = """
Examples:

`ingest dead replay 536365 536366` puts two orders back into the queue; so do the IDs of their dead letters.

`ingest dead replay --reason not_found --since 2h` asks before it puts back more than one.

`ingest dead replay --all --dry-run` counts them by reason, and changes nothing.

`ingest dead replay --all --yes --json` is for scripts.
"""


def replay(
    ids: Ids = None,
    *,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    everything: Everything = False,
    dry_run: DryRun = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Put dead letters back into the queue, with fresh attempts.

    Whatever the backlog is. They keep all their fields and the time when they were first announced, and remember how
    often and when they were replayed. Waits, and says so, while Redis is away or out of memory. Interrupted or repeated, it
    loses nothing and puts nothing back twice.

    The exit code is 1 if an ID stands for none; all others are put back.
    """
    from ingest.cli.common import start
    from ingest.cli.dead.change import REPLAY, carry_out
    from ingest.cli.dead.options import required

    selection = required(ids, reason, since, until, everything=everything)
    raise typer.Exit(carry_out(start(), REPLAY, selection, dry_run=dry_run, yes=yes, as_json=as_json))
