"""`ingest top`: the sources and workers, live in a terminal."""

import asyncio
import json
import sys
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ingest.cli.invocation import backends_to_show
from ingest.cli.options import Sources
from ingest.cli.terminal.keys import Keys
from ingest.cli.terminal.top_screen import SORTS, lines_of
from ingest.cli.terminal.width import console_on, width_of
from ingest.domain.errors import ConfigError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.deliveries.queue_state import QueueState
    from ingest.operations.backends import Backends
    from ingest.operations.state.flow_rates import Rates
    from ingest.operations.state.snapshot import Snapshot
    from ingest.operations.state.snapshots import Snapshots

# Workers report their counts every two seconds, and rates are known after two reports.
_MEASURED_FOR = 4.5


def top(
    *,
    source: Sources = None,
    once: Annotated[bool, typer.Option("--once", help="Print one screen, after about five seconds.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object each second.")] = False,
) -> None:
    """Show sources and workers live, like `top`.

    It shows how many orders arrive and are stored each second, the queues, the latency, the causes of incidents, and workers. It reads
    Redis once a second, and changes nothing.

    The exit code of `--once` is 1 if Redis cannot be reached.

    Keys: `q` quits, `p` stops and continues the display, `s` sorts the sources by another column.

    The latency is from enqueue to commit: 95 % of the orders are faster. Rates are averages over ten seconds.

    Examples:
    `ingest top` shows all sources, until `q` or Ctrl-C.

    `ingest top --source shop-de` shows one source.

    `ingest top --once` prints one screen, which may be redirected to a file.

    `ingest top --once --json | jq .rates.stored` prints the stored orders per second. Without `--once`, there is an object each second.
    """
    listed, errors = backends_to_show(source)
    if not sys.stdout.isatty() and not as_json:
        once = True
    code = run_interruptible(_run(listed, once=once, as_json=as_json))
    if errors:
        raise ConfigError(errors)
    raise typer.Exit(code)


async def _run(listed: "Sequence[Backends]", *, once: bool, as_json: bool) -> int:
    from ingest.operations.state.snapshots import Snapshots
    from ingest.queue.redis.connection import control_client
    from ingest.store.connections.pool import Pool

    async with (
        control_client(listed[0].redis_url) as redis,
        Pool.open(listed[0].postgres_dsn, size=1) as pool,
    ):
        snapshots = Snapshots(redis, listed, pool=pool)
        if once:
            snapshot = await _print_once(snapshots, as_json=as_json)
            return 1 if snapshot.problem else 0
        if as_json:
            while True:
                typer.echo(json.dumps(as_object(await snapshots.latest())))
                await asyncio.sleep(1.0)
        await _show(snapshots)
        return 0


async def _print_once(snapshots: "Snapshots", *, as_json: bool) -> "Snapshot":
    ends_at = time.monotonic() + _MEASURED_FOR
    snapshot = await snapshots.latest()
    # Without a worker, no rate becomes known.
    while snapshot.workers and time.monotonic() < ends_at:
        await asyncio.sleep(1.0)
        snapshot = await snapshots.latest()
    if as_json:
        typer.echo(json.dumps(as_object(snapshot)))
        return snapshot
    for line in lines_of(snapshot, width_of(sys.stdout), None, next(iter(SORTS))):
        typer.echo(line.plain)
    return snapshot


async def _show(snapshots: "Snapshots") -> None:
    from rich.live import Live
    from rich.text import Text

    console = console_on(sys.stdout)
    sorts, is_frozen = list(SORTS), False
    async with Keys.open() as keys:
        with Live(console=console, auto_refresh=False, screen=True) as live:
            snapshot = await snapshots.latest()
            while True:
                # The window may have another size by now.
                console.width = width_of(sys.stdout)
                lines = lines_of(snapshot, console.width, console.height, sorts[0], is_frozen=is_frozen)
                live.update(Text("\n").join(lines), refresh=True)
                match await keys.within(1.0):
                    case "q" | "Q":
                        return
                    case "p" | "P" | " ":
                        is_frozen = not is_frozen
                    case "s" | "S":
                        sorts = [*sorts[1:], sorts[0]]
                    case _:
                        pass
                if not is_frozen:
                    snapshot = await snapshots.latest()


def as_object(snapshot: "Snapshot") -> dict[str, Any]:
    """Convert a snapshot for JSON. An unknown value is null."""
    from msgspec import to_builtins

    from ingest.operations.control import pauses
    from ingest.operations.state.notices import condition_as_object

    return {
        "at": snapshot.at.isoformat(timespec="milliseconds"),
        "problem": snapshot.problem or None,
        "queue": _queue(snapshot.queue),
        "rates": _rates(snapshot.rates),
        "workers": snapshot.workers,
        "sources": [
            {
                "source": each.source,
                "condition": condition_as_object(each.condition),
                "queue": _queue(each.queue),
                "rates": _rates(each.rates),
                "workers": each.workers,
                "pause": to_builtins(pauses.shown(each.pause, snapshot.at)),
            }
            for each in snapshot.sources
        ],
    }


def _queue(queue: "QueueState | None") -> dict[str, Any] | None:
    names = ("depth", "pending", "retries", "dead", "oldest_age")
    return None if queue is None else {name: getattr(queue, name) for name in names}


def _rates(rates: "Rates") -> dict[str, Any]:
    return {name: value for name, value in asdict(rates).items() if name != "buckets"}
