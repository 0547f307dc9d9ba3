"""`ingest dead list`: lists dead letters, newest first."""

from typing import Annotated

import typer

from ingest.cli.dead.options import AsJson, Ids, Reasons, Since, Until


def list_(
    ids: Ids = None,
    *,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(help="List at most N.", min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first. Changes nothing.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    The exit code is 1 if an ID has no dead letter.

    Examples:
    `ingest dead list` lists the newest 50.

    `ingest dead list --reason not_found --reason rejected --since 2h` lists orders that the external API rejected
    in the last two hours.

    `ingest dead list 536365` lists the dead letters of one order.

    `ingest dead list --json --limit 1000 | jq -r .order_id` is for scripts: one JSON object per line.

    `ingest dead export` writes all of them, without a limit.
    """
    from ingest.cli.common import say, start
    from ingest.cli.dead.listing import print_json, print_table
    from ingest.cli.dead.options import selection_or_all
    from ingest.operations.backends import Backends

    selection = selection_or_all(ids, reason, since, until)
    backends = Backends.of(start())
    found = (print_json if as_json else print_table)(backends, selection, limit)
    if not found.count and not as_json:
        say("no dead letters")
    if found.has_more and not as_json:
        say(f"there are more than these {limit:,}: --limit lists more, `ingest dead export` writes all")
    raise typer.Exit(1 if found.missing else 0)
