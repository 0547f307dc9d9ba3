"""`ingest dead replay`: puts dead letters back into the queue."""

import typer

from ingest.cli.dead.options import Everything, Ids, Reasons, Since, Until, required_selection
from ingest.cli.options import AsJson, DryRun, Yes


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

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    INGEST_BACKLOG_LIMIT does not apply. The orders keep all their fields and the time of their first announcement, and
    record how often and when they were replayed. If Redis is unavailable or out of memory, the command reports it and waits.
    If you interrupt or repeat it, no order is lost or put back twice.

    The exit code is 1 if an ID has no dead letter. All others are put back.

    Examples:
    `ingest dead replay 536365 536366` puts two orders back into the queue. The IDs of their dead letters do the same.

    `ingest dead replay --reason not_found --since 2h` asks for confirmation if more than one dead letter matches.

    `ingest dead replay --all --dry-run` counts them by reason, and changes nothing.

    `ingest dead replay --all --yes --json` is for scripts.
    """
    from ingest.cli.dead.change import change
    from ingest.operations import dead_letters

    selection = required_selection(ids, reason, since, until, everything=everything)
    raise typer.Exit(
        change("replay", "replayed", dead_letters.replay, selection, dry_run=dry_run, yes=yes, as_json=as_json)
    )
