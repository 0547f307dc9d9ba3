"""`ingest partitions repair`: gives orders new entry IDs in lanes whose IDs are too far ahead."""

import json
from typing import TYPE_CHECKING

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.options import AsJson, DryRun, Sources
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted
from ingest.domain.errors import Unavailable, UserError
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.backends import Backends
    from ingest.operations.partitions import RepairedLane


def repair(*, source: Sources = None, dry_run: DryRun = False, as_json: AsJson = False) -> None:
    """Repair lanes whose entry IDs are used up or far ahead.

    Workers and producers continue.

    A program that may enqueue can choose the ID of an entry. After the largest ID, Redis rejects every further order of that lane.
    The command moves the entries of such a lane to a fresh stream, which takes its place. Orders that are in flight are processed
    once more. Replace the password of that program first.

    If the command is interrupted, run it again to continue. Lanes in order are left as they are.

    Examples:
    `ingest partitions repair --dry-run` lists the lanes that need a repair, and changes nothing.

    `ingest partitions repair` repairs the lanes of all sources.

    `ingest partitions repair --source shop-de` repairs the lanes of one source.
    """
    sources = [*backends_of_sources(source).values()]
    if dry_run:
        _show_plan(sources, as_json=as_json)
        return
    try:
        repaired = run_interruptible(_repair(sources))
    except (KeyboardInterrupt, Unavailable, UserError):
        say("the repair may not be complete: run `ingest partitions repair` again to continue it")
        raise
    if as_json:
        lanes = [{"queue": each.queue, "lane": each.lane, "entries": each.entries} for each in repaired]
        typer.echo(json.dumps({"lanes": lanes, "dry_run": False}))
        return
    for each in repaired:
        typer.echo(f"{each.queue}: the {each.lane} lane is repaired, {counted(each.entries, 'order')} moved")
    if not repaired:
        typer.echo("all lanes are in order")


async def _repair(sources: "list[Backends]") -> "list[RepairedLane]":
    from ingest.operations.partitions import repair_lanes

    with ProgressDisplay("moving entries") as display:
        repaired: list[RepairedLane] = []
        for backends in sources:
            repaired += await repair_lanes(backends, on_progress=display.update, on_wait=display.say)
        return repaired


def _show_plan(sources: "list[Backends]", *, as_json: bool) -> None:
    from ingest.operations.partitions import read_partitions

    states = [each for found in run_interruptible(read_partitions(sources)) for each in found.partitions]
    problems = [(each.queue, problem) for each in states for problem in each.state.id_problems]
    if as_json:
        lanes = [{"queue": queue, "problem": problem} for queue, problem in problems]
        typer.echo(json.dumps({"lanes": lanes, "dry_run": True}))
        return
    for queue, problem in problems:
        typer.echo(f"{queue}: {problem}")
    if not problems:
        typer.echo("all lanes are in order")
