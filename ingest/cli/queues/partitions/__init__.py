"""`ingest partitions`: shows the partitions of the queues."""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import typer

from ingest.cli.invocation import backends_of_sources
from ingest.cli.options import AsJson, Sources
from ingest.cli.terminal.times import format_duration
from ingest.cli.terminal.width import Table, width_of
from ingest.domain.source_name import UNNAMED
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.partitions import PartitionState, SourcePartitions

COMMANDS = ("set", "repair", "transfer")
RUNS_ALONE = True

_TABLE = Table(("queue", "phase", "waiting", "pending", "retries", "dead", "oldest"), names=1, facts=7)


def partitions(context: typer.Context, *, source: Sources = None, as_json: AsJson = False) -> None:
    """Show or change the partitions of the queue.

    Without a command, it shows the partitions with their orders, and changes nothing.

    Producers enqueue in current partitions. Former partitions remain from another number of partitions. Workers read both, and
    `ingest partitions set` drops former ones when they are drained. No worker reads a queue outside of the partitions. It contains
    orders of a program that does not know the partitions, and `ingest partitions set` with the current number adds it to the former
    ones.

    Examples:
    `ingest partitions` shows the partitions of all sources.

    `ingest partitions --source shop-de` shows the partitions of one source.

    `ingest partitions set 6` changes the number of partitions while workers and producers run.

    `ingest partitions --json | jq .partitions` prints the number of partitions.
    """
    if context.invoked_subcommand is not None:
        if source or as_json:
            option = "--source" if source else "--json"
            raise typer.BadParameter(f"{option} belongs behind `{context.invoked_subcommand}`")
        return
    from ingest.operations.partitions import read_partitions

    found = run_interruptible(read_partitions([*backends_of_sources(source).values()]))
    if as_json:
        reports = [_report(each) for each in found]
        typer.echo(json.dumps(reports[0] if found[0].source == UNNAMED else {"sources": reports}))
        return
    for line in _lines(found, width_of(sys.stdout)):
        typer.echo(line)


def _report(queue: "SourcePartitions") -> dict[str, Any]:
    layout = queue.layout
    return {
        "source": queue.source,
        "queue": layout.queue,
        "partitions": layout.partitions,
        "former": layout.former,
        "generation": layout.generation,
        "configured": queue.configured,
        "queues": [{"queue": each.queue, "phase": each.phase, **asdict(each.state)} for each in queue.partitions],
    }


def _lines(found: "Sequence[SourcePartitions]", width: int) -> Iterator[str]:
    rows = [_row(each) for queue in found for each in queue.partitions]
    sizes = [max(map(len, column)) for column in zip(_TABLE.header, *rows, strict=True)]
    for row in rows:
        row[2:] = [f"{cell:>{size}}" for cell, size in zip(row[2:], sizes[2:], strict=True)]
    yield from _TABLE.lines(rows, [""] * len(rows), width)
    for queue in found:
        yield from _notes(queue)


def _row(partition: "PartitionState") -> list[str]:
    state = partition.state
    counts = [
        "unknown" if number is None else f"{number:,}"
        for number in (state.depth, state.pending, state.retries, state.dead)
    ]
    age = "-" if state.oldest_age is None else format_duration(state.oldest_age)
    return [partition.queue, partition.phase.value, *counts, age]


def _notes(queue: "SourcePartitions") -> Iterator[str]:
    """Return the actions that the operator should take."""
    from ingest.operations.partitions import Phase
    from ingest.settings.names import setting_name

    layout = queue.layout
    command = f"ingest partitions set {layout.partitions}" + (f" --source {queue.source}" if queue.source else "")
    if layout.former:
        yield f"{layout.queue}: workers still read former partitions. `{command}` drops them when they are drained"
    if any(each.phase is Phase.OUTSIDE for each in queue.partitions):
        yield f"{layout.queue}: no worker reads the orders outside of the partitions. `{command}` lets workers read them"
    if queue.configured != layout.partitions:
        name = setting_name(queue.source, "partitions")
        yield f"{layout.queue}: {name} is {queue.configured}. Set it to {layout.partitions}, the number in use"
