"""`ingest dead drop`: dead letters that nobody needs any more."""

import typer

from ingest.cli.dead.options import AsJson, DryRun, Everything, Ids, Reasons, Since, Until, Yes

EPILOG = """
Examples:

`ingest dead drop 1763629200123-0` deletes one, by its own ID as `ingest dead list` prints it.

`ingest dead drop --until 30d` deletes what was buried more than thirty days ago; it asks before.

`ingest dead drop --reason rejected --dry-run` counts them, and changes nothing.

`ingest dead export --output dead.jsonl && ingest dead drop --all --yes` keeps a copy.
"""


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
    """Delete dead letters, for good.

    Orders that are stored stay as they are. Waits, and says so, while Redis is away.

    The exit code is 1 if an ID stands for none; all others are deleted.
    """
    from ingest.cli.common import start
    from ingest.cli.dead.change import DROP, carry_out
    from ingest.cli.dead.options import required

    selection = required(ids, reason, since, until, everything=everything)
    raise typer.Exit(carry_out(start(), DROP, selection, dry_run=dry_run, yes=yes, as_json=as_json))
