"""`ingest bench mapping`: a mapping compared with JMESPath."""

from functools import partial
from typing import Annotated

import typer

from ingest.cli.bench.output import AsJson, Output, publish


def mapping(
    *,
    turns: Annotated[int, typer.Option(help="Turns of each way, of 50 orders each.", min=1, max=1_000_000)] = 500,
    output: Output = None,
    as_json: AsJson = False,
) -> None:
    """Make orders of a document of 20 fields by a mapping, and find the same values by JMESPath.

    Runs in this process, without any server.

    Examples:
    `ingest bench mapping` takes about a second.

    `ingest bench mapping --turns 10000` finds the quiet moments of a busy machine.
    """
    from ingest.bench.mapping import Plan, run

    publish(partial(run, Plan(turns)), output, as_json=as_json)
