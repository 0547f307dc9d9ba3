"""`ingest partitions transfer`: moves dead letters and controls from the previous Redis of a deployment."""

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import backends_of_sources, holder, say
from ingest.cli.options import AsJson, Sources
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted
from ingest.domain.errors import ConfigError, Unavailable, UserError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.backends import Backends
    from ingest.operations.transfer import Transferred
    from ingest.queue.partitions.change_hold import HeldChange


def transfer(
    file: Annotated[
        str,
        typer.Argument(help="File with the URL of the previous Redis. `-` is stdin.", metavar="FILE", hidden=True),
    ],
    *,
    source: Sources = None,
    as_json: AsJson = False,
) -> None:
    """Move dead letters and controls from the previous Redis.

    Run it after you have configured a new Redis, such as a cluster, and before you start workers with the new settings.

    It first copies pauses and changed limits, so that a paused source gets no requests. Then it moves dead letters, and marks erased
    orders. Orders that wait or are retried stay in the previous Redis, and the exit code is 1 while there are any. Let workers with the
    previous URL process them, and run the command again.

    FILE contains the URL of the previous Redis. `-` reads it from stdin.

    Examples:
    `ingest partitions transfer previous-redis-url` moves the dead letters of all sources.

    `ingest partitions transfer previous-redis-url --source shop-de` moves the dead letters of one source.
    """
    sources = [*backends_of_sources(source).values()]
    url = _url_in(file)
    try:
        paused, results = run_interruptible(_transfer(sources, url))
    except (KeyboardInterrupt, Unavailable, UserError):
        say("the transfer may not be complete: run the command again to continue it")
        raise
    if as_json:
        reports = [{"source": each.source, "moved": each.moved, "remaining": each.remaining} for each in results]
        typer.echo(json.dumps({"paused": paused, "sources": reports}))
    else:
        for name in paused:
            typer.echo(f"{name or 'the source'} is paused, like in the previous Redis")
        for backends, each in zip(sources, results, strict=True):
            typer.echo(f"{backends.stream}: {counted(each.moved, 'dead letter')} moved")
    for backends, each in zip(sources, results, strict=True):
        if each.remaining:
            say(f"{backends.stream}: {counted(each.remaining, 'order')} left in the previous Redis for its workers")
    raise typer.Exit(1 if any(each.remaining for each in results) else 0)


def _url_in(file: str) -> str:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read the URL of the previous Redis from {file}: {error}") from error
    if not text.strip():
        raise ConfigError(f"{file} contains no URL")
    return text.strip()


async def _transfer(sources: "list[Backends]", url: str) -> "tuple[list[str], list[Transferred]]":
    from ingest.operations.transfer import transfer, transfer_controls

    with ProgressDisplay("moving dead letters") as display:
        said = set[str]()

        def on_held(change: "HeldChange") -> None:
            if change.holder not in said:
                said.add(change.holder)
                display.say(f"waiting for {change.holder}, which changes the partitions")

        name, on_progress, on_wait = holder(), display.update, display.say
        paused = await transfer_controls(sources[0], url, on_wait)
        return paused, [
            await transfer(each, url, holder=name, on_progress=on_progress, on_held=on_held, on_wait=on_wait)
            for each in sources
        ]
