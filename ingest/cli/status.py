"""`ingest status`: what is queued, what is being worked on, what is stored."""

import asyncio
import json
import sys
from dataclasses import asdict
from typing import Annotated, Any

import typer

from ingest.cli.moment import Status, lines_of
from ingest.cli.terminal import console_on, width_of

EPILOG = """
Examples:

`ingest status` shows a table.

`ingest status --watch` shows it anew every second, until Ctrl-C.

`ingest status --json | jq .queue.depth` is for scripts; with `--watch`, one JSON object a line.

`ingest status --json | jq -r '.consumers[] | select(.state == "stale") | .name'` names the processes whose heartbeat has ended.
"""


def status(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
) -> None:
    """Show the queue, its consumers and the stored orders. Changes nothing.

    A consumer is alive as long as its heartbeat says so; beside it stands whether its circuit is open: why it asks the external API
    for nothing.

    The exit code is 1 if Redis or PostgreSQL cannot be reached.
    """
    from ingest.cli.common import start
    from ingest.operations.service import Service

    service = Service.of(start())
    moment = asyncio.run(_watch(service, interval, as_json=as_json) if watch else _look(service))
    if not watch:
        _show(moment, as_json=as_json)
    raise typer.Exit(1 if moment.errors else 0)


async def _look(service: Any) -> Status:
    from ingest.operations.status import read_status

    return Status(**asdict(await read_status(service)))


async def _watch(service: Any, interval: float, *, as_json: bool) -> Status:
    from rich.live import Live
    from rich.text import Text

    if as_json or not sys.stdout.isatty():
        while True:
            _show(await _look(service), as_json=as_json)
            await asyncio.sleep(interval)
    console = console_on(sys.stdout)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            moment = await _look(service)
            live.update(Text("\n".join(lines_of(moment, width_of(sys.stdout)))), refresh=True)
            await asyncio.sleep(interval)


def _show(moment: Status, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(moment), default=str))
        return
    for line in lines_of(moment, width_of(sys.stdout)):
        typer.echo(line)
