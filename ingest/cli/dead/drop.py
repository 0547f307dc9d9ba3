"""`ingest dead drop`: deletes dead letters."""

import typer

from ingest.cli.dead.options import Everything, Ids, Reasons, Since, Until, required_selection
from ingest.cli.options import AsJson, DryRun, Yes


def drop(
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
    """Delete dead letters permanently.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    Stored orders do not change. If Redis is unavailable, the command reports it and waits.

    The exit code is 1 if an ID has no dead letter. All others are deleted.

    Examples:
    `ingest dead drop 1763629200123-0` deletes one dead letter, by its ID as `ingest dead list` prints it.

    `ingest dead drop --until 30d` deletes dead letters that are more than 30 days old, after asking for confirmation.

    `ingest dead drop --reason rejected --dry-run` counts them, and changes nothing.

    `ingest dead export --output dead.jsonl && ingest dead drop --all --yes` keeps a copy.
    """
    from ingest.cli.dead.change import change
    from ingest.operations import dead_letters

    selection = required_selection(ids, reason, since, until, everything=everything)
    raise typer.Exit(change("drop", "dropped", dead_letters.drop, selection, dry_run=dry_run, yes=yes, as_json=as_json))
