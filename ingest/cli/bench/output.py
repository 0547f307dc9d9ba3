"""What all benches have in common on the command line: where the report goes."""

import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.common import say
from ingest.domain.masking import mask_urls

if TYPE_CHECKING:
    from ingest.bench.report import Result

Output = Annotated[
    Path | None,
    typer.Option(metavar="DIRECTORY", help="Write the tables, JSON and charts there.", file_okay=False),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def command_line() -> str:
    """The command as it was typed, without passwords."""
    return shlex.join(["ingest", *map(mask_urls, sys.argv[1:])])


def print_result(result: "Result", output: Path | None, *, as_json: bool) -> None:
    """Print the report, and write it with its charts if a directory is given."""
    typer.echo(result.report.json() if as_json else result.report.markdown())
    if output is not None:
        result.write(output)
        say(f"written to {output}")
