"""`ingest status`: the queue, its consumers and the stored orders."""

import asyncio
import json
import sys
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Never

import typer

from ingest.cli.invocation import require, start_with_backends
from ingest.cli.terminal.status_table import lines_of
from ingest.cli.terminal.width import console_on, width_of
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.backends import Backends
    from ingest.operations.status import SystemStatus


def status(
    context: typer.Context,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="With --watch: seconds between refreshes.", min=0.1)] = 1.0,
) -> None:
    """Show the queue, its consumers and the stored orders.

    Waiting orders are not yet delivered to a worker. Pending orders are delivered and not yet stored. Workers read the express
    lane before the main lane. The age of the oldest order counts from its first announcement.

    A consumer is alive until its heartbeat expires. An open circuit means that it sends no requests to the external API.

    The exit code is 1 if Redis or PostgreSQL cannot be reached.

    Examples:
    `ingest status` shows a table.

    `ingest status --watch` refreshes it every second, until Ctrl-C.

    `ingest status --json | jq .queue.depth` is for scripts. With `--watch`, it prints one JSON object per line.

    `ingest status --json | jq .queue.lanes.express.depth` counts the waiting orders of the express lane.

    `ingest status --json | jq -r '.consumers[] | select(.state == "stale") | .name'` lists the processes whose
    heartbeat has expired.
    """
    from ingest.operations.status import read_status

    if not watch:
        require(context, "--watch", "interval")
    backends = start_with_backends()
    found = run_interruptible(_watch(backends, interval, as_json=as_json) if watch else read_status(backends))
    if not watch:
        _show(found, as_json=as_json)
    raise typer.Exit(1 if found.errors else 0)


async def _watch(backends: "Backends", interval: float, *, as_json: bool) -> Never:
    from rich.live import Live
    from rich.text import Text

    from ingest.operations.status import read_status

    if as_json or not sys.stdout.isatty():
        while True:
            _show(await read_status(backends), as_json=as_json)
            await asyncio.sleep(interval)
    console = console_on(sys.stdout)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            found = await read_status(backends)
            # Its window may have another size by now.
            console.width = width_of(sys.stdout)
            live.update(Text("\n".join(lines_of(found, console.width))), refresh=True)
            await asyncio.sleep(interval)


def _show(status: "SystemStatus", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(status), default=datetime.isoformat))
        return
    for line in lines_of(status, width_of(sys.stdout)):
        typer.echo(line)
