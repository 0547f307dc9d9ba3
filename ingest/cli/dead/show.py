"""`ingest dead show`: all there is to know about a dead letter."""

import asyncio
from typing import Annotated

import typer

from ingest.cli.dead.options import AsJson

EPILOG = """
Examples:

`ingest dead show 1763629200123-0` shows one, by its own ID as `ingest dead list` prints it.

`ingest dead show 536365` shows every one of an order.

`ingest dead show 536365 --json | jq -r .fields.document` is for scripts: one JSON object for each, on a line of its own.
"""


def show(
    ids: Annotated[
        list[str],
        typer.Argument(help="Dead letters by their own IDs, or all those of an order by its ID.", metavar="ID"),
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Show dead letters with all their fields. Changes nothing.

    The exit code is 1 if an ID stands for none.
    """
    from ingest.cli.common import start
    from ingest.cli.dead.listing import look, show_facts, show_json
    from ingest.domain.dead_letter import Selection

    settings = start()
    found = asyncio.run(look(settings, Selection(ids=frozenset(ids)), None))
    if as_json:
        show_json(found.letters)
    else:
        show_facts(found.letters)
    raise typer.Exit(found.exit_code)
