"""`ingest drain`: lets worker processes begin no orders, for example before their host is stopped."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.controls.controlling import Reason, run_with_access
from ingest.cli.invocation import actor, backends_of_sources, say
from ingest.cli.options import AsJson, DryRun
from ingest.cli.terminal.text import counted, printable
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.operations.control.control_access import ControlAccess
    from ingest.operations.control.controls import WorkerProcess

_LONGEST_NAME = 100


def drain(
    target: Annotated[
        str | None,
        typer.Argument(help="A host, or a process as `ingest status` names it.", metavar="HOST|PROCESS", hidden=True),
    ] = None,
    *,
    undo: Annotated[bool, typer.Option("--undo", help="Let them begin orders again.")] = False,
    reason: Reason = "",
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Let a host or worker process begin no orders.

    Within two seconds, its processes begin no orders of any source. Requests in flight finish, and other processes take the rest.
    The processes continue to run, so that you can stop them whenever you want. A drain of a host survives restarts.

    Without a name, the command lists the worker processes.

    Examples:
    `ingest drain` lists the worker processes and their states.

    `ingest drain web1 --reason "kernel update"` drains all worker processes on the host web1.

    `ingest drain web1-1f0c22ab-0` drains one process.

    `ingest drain web1 --undo` lets them begin orders again.
    """
    from ingest.operations.control import controls

    if target is None and (undo or reason or dry_run):
        raise ConfigError("name a host or a process: `ingest drain` lists them")

    async def act(access: "ControlAccess") -> "Sequence[WorkerProcess]":
        if target is None:
            return await controls.processes(access)
        if dry_run:
            return await controls.matching(access, target)
        if undo:
            return await controls.undrain(access, target, actor())
        return await controls.drain(access, target, actor(), reason)

    found = run_with_access(backends_of_sources(None), act)
    if as_json:
        for each in found:
            drained = each.drain is not None if target is None or dry_run else not undo
            report = {"process": each.name, "pending": each.pending, "drained": drained, "dry_run": dry_run}
            typer.echo(json.dumps(report))
    elif target is None:
        _list(found)
    else:
        verb = ("undo the drain of" if undo else "drain") if dry_run else "resumed" if undo else "drained"
        pending = sum(each.pending for each in found)
        typer.echo(f"{'would ' if dry_run else ''}{verb} {_processes(len(found))} with {counted(pending, 'order')}")
    if not found and (target is None or dry_run):
        say("no worker process has a heartbeat" if target is None else f"no worker process matches {printable(target)}")


def _list(found: "Sequence[WorkerProcess]") -> None:
    for each in found:
        state = "running" if each.drain is None else "drained"
        typer.echo(f"{printable(each.name, _LONGEST_NAME)}  {counted(each.pending, 'order')}  {state}")


def _processes(count: int) -> str:
    return f"{count:,} process{'' if count == 1 else 'es'}"
