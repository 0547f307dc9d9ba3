"""`ingest dead list`: the dead letters, newest first."""

import asyncio
from typing import Annotated

import typer

from ingest.cli.dead.options import AsJson, Ids, Reasons, Since, Until

EPILOG = """
Examples:

`ingest dead list` shows the newest fifty.

`ingest dead list --reason not_found --reason rejected --since 2h` shows what the external API refused lately.

`ingest dead list 536365` shows what was buried of one order.

`ingest dead list --json --limit 1000 | jq -r .order_id` is for scripts: one JSON object a line.

For all of them, however many: `ingest dead export`.
"""


def list_(
    ids: Ids = None,
    *,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    limit: Annotated[int, typer.Option(help="Show at most so many.", min=1, max=10_000)] = 50,
    as_json: AsJson = False,
) -> None:
    """List dead letters, newest first. Changes nothing.

    The exit code is 1 if an ID stands for none.
    """
    from ingest.cli.common import start
    from ingest.cli.dead.listing import look, show_json, show_table
    from ingest.cli.dead.options import chosen_or_all

    settings = start()
    found = asyncio.run(look(settings, chosen_or_all(ids, reason, since, until), limit))
    if as_json:
        show_json(found.letters)
    else:
        show_table(found, limit)
    raise typer.Exit(found.exit_code)
