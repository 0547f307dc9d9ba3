"""`ingest partitions set`: changes the number of partitions while workers and producers run."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import backends_of_source, holder, say
from ingest.cli.options import AsJson, DryRun, OneSource
from ingest.cli.terminal.progress import ProgressDisplay
from ingest.cli.terminal.text import counted
from ingest.domain.errors import Unavailable, UserError
from ingest.domain.partitions import MOST_PARTITIONS
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.backends import Backends
    from ingest.operations.partitions import Changed, SourcePartitions
    from ingest.queue.partitions.change_hold import HeldChange
    from ingest.queue.partitions.repartitioning import Progress


def set_(
    number: Annotated[int, typer.Argument(help="Partitions.", metavar="N", hidden=True, min=1, max=MOST_PARTITIONS)],
    *,
    source: OneSource = None,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Change the number of partitions of a queue.

    Workers and producers continue.

    Workers and producers follow within seconds. Orders in former partitions are processed there, and their dead letters move. The
    command waits until the former partitions are drained, and drops them.

    Ctrl-C only ends the waiting. Run the command again to continue it. While another process changes the partitions, the command shows
    its progress, and begins when that process has ended. With several sources, `--source` is required.

    Examples:
    `ingest partitions set 6` divides the queue of the only source into 6 partitions.

    `ingest partitions set 6 --source shop-de` divides the queue of one source.

    `ingest partitions set 6 --dry-run` shows how many orders the command would wait for, and changes nothing.

    `ingest partitions` shows the partitions and their orders.
    """
    backends = backends_of_source(source)
    if dry_run:
        _show_plan(backends, number, as_json=as_json)
        return
    try:
        changed = run_interruptible(_change(backends, number))
    except (KeyboardInterrupt, Unavailable, UserError):
        say(f"the change may not be complete: run `{_command(backends, number)}` again to continue it")
        raise
    if as_json:
        report = {"source": backends.source, "queue": backends.stream, "before": changed.before.partitions}
        report |= {"partitions": changed.after.partitions, "former": changed.after.former, "moved": changed.moved}
        typer.echo(json.dumps(report | {"dry_run": False}))
    else:
        typer.echo(_result(changed))
    if number != backends.partitions:
        say(f"configure {counted(number, 'partition')} as well: {_setting(backends)} is {backends.partitions}")


async def _change(backends: "Backends", number: int) -> "Changed":
    from ingest.operations.partitions import change_partitions

    with ProgressDisplay("draining") as display:
        most, reported = 0, [""]

        def show(left: int) -> None:
            nonlocal most
            most = max(most, left)
            display.update(most - left, most)

        def on_held(change: "HeldChange") -> None:
            text = f"{change.holder} is changing the partitions to {change.partitions}: this command continues when that one ends"
            if text not in reported:
                reported.append(text)
                display.say(text)
            show(change.left)

        def on_progress(progress: "Progress") -> None:
            left = progress.entries + progress.retries
            show(left)
            queues = ", ".join(progress.waiting_for)
            if queues and not left and queues != reported[-1]:
                reported.append(queues)
                display.say(f"waiting for orders that were enqueued in {queues} before the change")

        return await change_partitions(
            backends, number, holder=holder(), on_progress=on_progress, on_held=on_held, on_wait=display.say
        )


def _show_plan(backends: "Backends", number: int, *, as_json: bool) -> None:
    from ingest.operations.partitions import read_partitions

    [found] = run_interruptible(read_partitions([backends]))
    waiting = _unfinished(found)
    dead = sum(each.state.dead for each in found.partitions)
    before = found.layout.partitions
    if as_json:
        report = {"source": backends.source, "queue": backends.stream, "before": before, "partitions": number}
        typer.echo(json.dumps(report | {"unfinished": waiting, "dead": dead, "dry_run": True}))
    elif before == number and not found.layout.former:
        typer.echo(f"{backends.stream} has {counted(number, 'partition')} already")
    else:
        new = counted(number, "partition")
        begin = (
            f"continue the change of {backends.stream}"
            if before == number
            else f"change {backends.stream} from {before:,}"
        )
        wait = f"wait for up to {counted(waiting, 'order')}"
        typer.echo(f"would {begin} to {new}, {wait}, and move up to {counted(dead, 'dead letter')}")


def _unfinished(found: "SourcePartitions") -> int:
    states = [each.state for each in found.partitions]
    return sum((state.depth or 0) + state.pending + state.retries for state in states)


def _result(changed: "Changed") -> str:
    queue, after = changed.after.queue, changed.after.partitions
    moved = f", {counted(changed.moved, 'dead letter')} moved" if changed.moved else ""
    was = "" if changed.before.partitions == after else f", before {changed.before.partitions:,}"
    return f"{queue} has {counted(after, 'partition')}{was}{moved}"


def _command(backends: "Backends", number: int) -> str:
    return f"ingest partitions set {number}" + (f" --source {backends.source}" if backends.source else "")


def _setting(backends: "Backends") -> str:
    from ingest.settings.names import setting_name

    return setting_name(backends.source, "partitions")
