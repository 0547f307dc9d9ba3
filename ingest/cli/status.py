"""`ingest status`: what is queued, what is being worked on, what is stored."""

import asyncio
import json
import sys
from dataclasses import asdict
from datetime import UTC, datetime
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

    settings = start()
    moment = asyncio.run(_watch(settings, interval, as_json=as_json) if watch else _look(settings))
    if not watch:
        _show(moment, as_json=as_json)
    raise typer.Exit(1 if moment.errors else 0)


async def _look(settings: Any) -> Status:
    from ingest.domain.errors import Unavailable, UserError
    from ingest.queue.connection import control_client
    from ingest.queue.monitor import Monitor
    from ingest.store.overview import overview

    errors: dict[str, str] = {}
    queue = consumers = orders = None
    try:
        async with control_client(settings.redis_url.get_secret_value()) as client:
            monitor = Monitor(client, settings.stream, settings.group)
            queue = asdict(await monitor.state())
            consumers = [asdict(state) for state in await monitor.consumers()]
    except (Unavailable, UserError) as error:
        errors["redis"] = str(error)
    try:
        orders = asdict(await overview(settings.postgres_dsn.get_secret_value()))
    except (Unavailable, UserError) as error:
        errors["postgres"] = str(error)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    return Status(now, settings.stream, settings.group, queue, consumers, orders, errors)


async def _watch(settings: Any, interval: float, *, as_json: bool) -> Status:
    from rich.live import Live
    from rich.text import Text

    if as_json or not sys.stdout.isatty():
        while True:
            _show(await _look(settings), as_json=as_json)
            await asyncio.sleep(interval)
    console = console_on(sys.stdout)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            moment = await _look(settings)
            live.update(Text("\n".join(lines_of(moment, width_of(sys.stdout)))), refresh=True)
            await asyncio.sleep(interval)


def _show(moment: Status, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(moment), default=str))
        return
    for line in lines_of(moment, width_of(sys.stdout)):
        typer.echo(line)
