"""`ingest status`: the queue, its consumers and the stored orders."""

import asyncio
import json
import sys
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Never

import typer

from ingest.cli.invocation import backends_to_show, require
from ingest.cli.options import Sources
from ingest.cli.terminal.status_table import lines_of
from ingest.cli.terminal.width import console_on, width_of
from ingest.domain.errors import ConfigError
from ingest.domain.source_name import UNNAMED
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.operations.backends import Backends
    from ingest.operations.state.status import SystemStatus


def status(
    context: typer.Context,
    *,
    source: Sources = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Refresh until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option(help="With --watch: seconds between refreshes.", min=0.1)] = 1.0,
) -> None:
    """Show the queue, its workers and the stored orders.

    With several sources, it shows one line for each.

    Waiting orders are not yet delivered to a worker. Pending orders are delivered and not yet stored. Workers read the express
    lane before the main lane. The age of the oldest order counts from its first announcement.

    A consumer is alive until its heartbeat expires. Below the numbers, a line for each server or source names the cause of an incident
    and since when it lasts.

    The exit code is 1 if Redis or PostgreSQL cannot be reached, and while a source cannot work. A pause is no error. It is 2 if the
    configuration of a source cannot be used. The other sources are shown.

    Examples:
    `ingest status` shows a table.

    `ingest status --source shop-de` shows the details of one of several sources.

    `ingest status --watch` refreshes it every second, until Ctrl-C.

    `ingest status --json | jq .queue.depth` prints the number of waiting orders. With `--watch`, each line is a
    JSON object.

    `ingest status --json | jq .queue.lanes.express.depth` counts the waiting orders of the express lane.

    `ingest status --json | jq -r '.sources[] | select(.queue.dead > 0) | .source'` lists the sources with dead letters, in
    a deployment with a sources file.

    `ingest status --json | jq -r '.condition.reasons[].text'` prints the causes of an incident.

    `ingest status --json | jq -r '.consumers[] | select(.state == "stale") | .name'` lists the processes whose
    heartbeat has expired.
    """
    from ingest.operations.state.status import read_status

    if not watch:
        require(context, "--watch", "interval")
    sources, errors = backends_to_show(source)
    found = run_interruptible(_watch(sources, interval, as_json=as_json) if watch else read_status(sources))
    if not watch:
        _show(found, as_json=as_json)
    if errors:
        raise ConfigError(errors)
    raise typer.Exit(1 if found[0].errors or any(each.condition.cannot_work for each in found) else 0)


async def _watch(sources: "Sequence[Backends]", interval: float, *, as_json: bool) -> Never:
    from rich.live import Live
    from rich.text import Text

    from ingest.operations.state.status import read_status

    if as_json or not sys.stdout.isatty():
        while True:
            _show(await read_status(sources), as_json=as_json)
            await asyncio.sleep(interval)
    console = console_on(sys.stdout)
    with Live(console=console, auto_refresh=False, screen=True) as live:
        while True:
            found = await read_status(sources)
            # Its window may have another size by now.
            console.width = width_of(sys.stdout)
            live.update(Text("\n".join(lines_of(found, console.width))), refresh=True)
            await asyncio.sleep(interval)


def _show(found: "Sequence[SystemStatus]", *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(_report(found), default=_encoded))
        return
    for line in lines_of(found, width_of(sys.stdout)):
        typer.echo(line)


def _encoded(value: object) -> Any:
    """A time as ISO 8601, and a reason as an object."""
    import msgspec

    return value.isoformat() if isinstance(value, datetime) else msgspec.to_builtins(value)


def _report(found: "Sequence[SystemStatus]") -> dict[str, Any]:
    """The state of the unnamed source, or a list of the named ones, so that their number does not change the members."""
    from ingest.operations.state.notices import condition_as_object
    from ingest.operations.state.status import totals

    sources = [{**asdict(each), "condition": condition_as_object(each.condition)} for each in found]
    if found[0].source == UNNAMED:
        return sources[0]
    return {"at": found[0].at, "sources": sources, "totals": totals(found), "errors": found[0].errors}
