"""What all benches have in common on the command line: where the report goes."""

import shlex
import sys
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import say
from ingest.domain.masking import mask_urls
from ingest.process.standard_streams import CannotWrite

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ingest.bench.report import Findings

Output = Annotated[
    Path | None, typer.Option(metavar="DIRECTORY", help="Write the tables, JSON and charts there.", file_okay=False)
]
AsJson = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def publish(bench: "Callable[[], Findings]", output: Path | None, *, as_json: bool) -> None:
    """Run a bench, print its report, and write it with its charts if a directory is given."""
    from ingest.bench.machine import Machine
    from ingest.bench.report import Report

    if output is not None:
        # A run takes minutes, so that errors of the directory are reported before it.
        with _writing_to(output):
            output.mkdir(parents=True, exist_ok=True)
            TemporaryFile(dir=output).close()
    machine = Machine.here()
    # As it was typed, without passwords.
    command = shlex.join(["ingest", *map(mask_urls, sys.argv[1:])])
    report = Report(bench(), command, machine)
    typer.echo(report.json() if as_json else report.markdown())
    if output is not None:
        with _writing_to(output):
            report.write(output)
        say(f"written to {output}")


@contextmanager
def _writing_to(output: Path) -> "Iterator[None]":
    try:
        yield
    except OSError as error:
        raise CannotWrite(f"cannot write to {output}: {error.strerror}") from error
