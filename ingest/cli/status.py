"""`ingest status`: what is queued, what is being worked on, what is stored."""

import asyncio
import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

EPILOG = """
Examples:

`ingest status` shows a table.

`ingest status --watch` shows it anew every second, until Ctrl-C.

`ingest status --json | jq .queue.depth` is for scripts; with `--watch`, one JSON object a line.
"""


@dataclass(frozen=True, slots=True)
class Status:
    """A moment of the service; a part whose server cannot be reached is None, and its error says why."""

    at: str
    stream: str
    group: str
    queue: Any
    consumers: list[Any] | None
    orders: Any
    errors: dict[str, str]


def status(
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Go on until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks.", min=0.1)] = 1.0,
) -> None:
    """Show the queue, its consumers and the stored orders. Changes nothing.

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
    from rich.console import Console
    from rich.live import Live

    console = Console()
    if as_json or not console.is_terminal:
        while True:
            _show(await _look(settings), as_json=as_json)
            await asyncio.sleep(interval)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            live.update(_tables(await _look(settings)), refresh=True)
            await asyncio.sleep(interval)


def _show(moment: Status, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(asdict(moment), default=str))
        return
    from rich.console import Console

    Console().print(_tables(moment), highlight=False)


def _tables(moment: Status) -> Any:
    from rich.console import Group
    from rich.table import Table

    facts = Table(box=None, show_header=False, pad_edge=False)
    facts.add_column(style="dim")
    facts.add_column(justify="right")
    facts.add_row("stream", f"{moment.stream} (group {moment.group})")
    if moment.queue is not None:
        queue = moment.queue
        facts.add_row("waiting", "unknown" if queue["depth"] is None else f"{queue['depth']:,}")
        facts.add_row("in work", f"{queue['pending']:,}")
        facts.add_row("oldest", _age(queue["oldest_age"]))
        facts.add_row("retries scheduled", f"{queue['retries']:,}")
        facts.add_row("dead letters", f"{queue['dead']:,}")
    if moment.orders is not None:
        last = moment.orders["last_ingested_at"]
        facts.add_row("orders stored", f"{moment.orders['stored']:,}")
        facts.add_row("last stored", "never" if last is None else f"{last:%Y-%m-%d %H:%M:%S} UTC")
    for server, error in moment.errors.items():
        facts.add_row(server, f"[red]{' '.join(error.split())}[/red]")
    if not moment.consumers:
        return facts
    consumers = Table(box=None, pad_edge=False)
    consumers.add_column("consumer")
    consumers.add_column("in work", justify="right")
    consumers.add_column("last seen", justify="right")
    for state in moment.consumers:
        consumers.add_row(state["name"], f"{state['pending']:,}", f"{_age(state['idle'])} ago")
    return Group(facts, "", consumers)


def _age(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.1f} s"
