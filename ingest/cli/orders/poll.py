"""`ingest poll`: reads the lists of orders of shops once."""

import json
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import typer

from ingest.cli.invocation import start_with_sources
from ingest.cli.options import AsJson, Sources
from ingest.cli.terminal.text import counted, printable
from ingest.domain.errors import ConfigError, Fault, Unavailable, UserError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.poll.look import Found
    from ingest.settings import Settings


@dataclass(frozen=True, slots=True)
class _Polled:
    source: str
    found: "Found | None"
    error: str | None


def poll(*, source: Sources = None, as_json: AsJson = False) -> None:
    """Enqueue new orders from lists of shops, once.

    It reads the list of orders of each source, and enqueues orders that are missing or older in the database.

    Without --source, all sources with a list are read. The reading begins where the last one has ended, by workers with `poll` or by this
    command, minus the overlap. The first one begins now, minus the overlap: older orders are for `ingest backfill`.

    The exit code is 1 if a list cannot be read, or not completely. The other lists are read nevertheless.

    Examples:
    `ingest poll` reads all lists now.

    `ingest poll --source shop-de --json` reads one, and prints a JSON object for each source.

    `*/15 * * * * ingest poll` reads them every 15 minutes, in a crontab. Workers do the same with `poll = "15m"`
    in the table of the source.
    """
    settings = start_with_sources(source)
    listed = {name: each for name, each in settings.items() if each.order_list is not None or source}
    if not listed:
        raise ConfigError("no source has a list of orders: describe it in the table `list` of the source")
    has_failed = False
    for each in listed.values():
        result = _poll(each)
        typer.echo(_as_json(result) if as_json else _as_text(result))
        has_failed = has_failed or result.found is None or bool(result.found.gaps.sentences)
    raise typer.Exit(1 if has_failed else 0)


def _poll(settings: "Settings") -> _Polled:
    from ingest.cli.terminal.progress import ProgressDisplay
    from ingest.operations.poll.turns import TurnLost
    from ingest.services.lists.polling import poll_now
    from ingest.services.tracing import traced

    name = settings.source
    try:
        with ProgressDisplay(f"polling {name}".strip()) as display:
            waits = f"{name}: ".lstrip(": ") + "waiting for another process, which reads this list"
            work = partial(poll_now, settings, os.environ, display.update, lambda: display.say(waits))
            found = run_interruptible(traced(settings, "poll", work))
    except ConfigError:
        raise
    except (Fault, UserError) as error:
        return _Polled(name, None, str(error))
    except Unavailable as error:
        return _Polled(name, None, f"{error.server} is unavailable: {error}")
    except TurnLost:
        return _Polled(name, None, "PostgreSQL was unavailable, and another process reads this list now")
    return _Polled(name, found, None)


def _as_json(result: _Polled) -> str:
    import msgspec

    found = result.found
    counts = {} if found is None else msgspec.to_builtins(found.counts) | found.gaps.as_dict()
    position = None if found is None else found.position.isoformat()
    return json.dumps({"source": result.source, "error": result.error, "position": position} | counts)


def _as_text(result: _Polled) -> str:
    before = f"{result.source}: " if result.source else ""
    if result.found is None:
        return f"{before}the list cannot be read: {printable(result.error or '', 300)}"
    counts, gaps = result.found.counts, result.found.gaps
    parts = {
        "enqueued": counts.enqueued,
        "already waiting": counts.waiting,
        "unchanged": counts.unchanged,
        "skipped": counts.skipped,
    }
    shown = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    lines = [f"{before}{counted(counts.listed, 'listed order')}" + (f": {shown}" if shown else "")]
    lines += [f"{before}not proven: {printable(sentence, 1000)}" for sentence in gaps.sentences]
    return "\n".join(lines + ([f"{before}{gaps.note}"] if gaps.note else []))
