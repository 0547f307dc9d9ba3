"""`ingest pause`: stops requests to the external API of a source."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.controls.controlling import (
    AllSources,
    Reason,
    chosen_to_control,
    duration_of,
    named,
    run_with_access,
    until,
)
from ingest.cli.invocation import actor, say
from ingest.cli.options import AsJson, DryRun, SourcesToChange
from ingest.cli.terminal.text import counted, printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ingest.domain.operating.controls import Pause
    from ingest.operations.control.control_access import ControlAccess
    from ingest.operations.control.pauses import SourcePause


def pause(
    *,
    source: SourcesToChange = None,
    everything: AllSources = False,
    duration: Annotated[
        str | None,
        typer.Option("--for", help="Resume after this time: 90s, 10m, 2h. Defaults to no end.", metavar="DURATION"),
    ] = None,
    reason: Reason = "",
    reject_orders: Annotated[
        bool, typer.Option("--reject-orders", help="Reject new orders (HTTP 503) instead of queueing them.")
    ] = False,
    hold_polls: Annotated[bool, typer.Option("--hold-polls", help="Do not read the list of the shop.")] = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Pause a source on all workers.

    Within two seconds, no request to its external API begins. Requests in flight finish, and their orders are stored. All other
    orders wait in the queue, and no attempt counts. Other sources continue. A pause survives restarts.

    Without `--for`, the pause lasts until `ingest resume`. Polls of the shop's list continue, unless you give `--hold-polls`. A repeated
    command replaces the pause.

    Examples:
    `ingest pause --for 10m --reason "shop maintenance"` pauses the only source for ten minutes.

    `ingest pause --source shop-de` pauses one of several sources until `ingest resume --source shop-de`.

    `ingest pause --source shop-de --hold-polls --reject-orders` sends nothing to the shop and accepts nothing for it.

    `ingest pause --all --dry-run` shows how many orders would wait, and changes nothing.
    """
    from ingest.operations.control.pauses import PauseRequest, preview
    from ingest.operations.control.pauses import pause as pause_sources

    seconds = duration_of(duration)
    sources, names = chosen_to_control(source, everything=everything)
    request = PauseRequest(seconds, reason, rejects_orders=reject_orders, holds_polls=hold_polls)

    async def act(access: "ControlAccess") -> "tuple[Sequence[SourcePause], Mapping[str, Pause]]":
        # A count that cannot be read must not prevent the pause.
        if dry_run:
            return await preview(access, names), {}
        return (), await pause_sources(access, names, request, actor())

    found, paused = run_with_access(sources, act)
    if dry_run:
        _show_plan(found, as_json=as_json)
    elif as_json:
        for name, each in paused.items():
            typer.echo(json.dumps({"source": name, **_as_object(each), "dry_run": False}))
    else:
        for name, each in paused.items():
            typer.echo(f"{named(name)} is paused {until(each.until)}")
        if seconds is None:
            say(f"resume it with `ingest resume{_options(names)}`")


def _show_plan(found: "Sequence[SourcePause]", *, as_json: bool) -> None:
    for each in found:
        waiting = (each.queue.depth or 0) + each.queue.retries
        if as_json:
            before = None if each.pause is None else _as_object(each.pause)
            plan = {"source": each.source, "waiting": waiting, "pending": each.queue.pending, "paused": before}
            typer.echo(json.dumps(plan | {"dry_run": True}))
            continue
        already = "" if each.pause is None else f" (paused {until(each.pause.until)} by {printable(each.pause.by, 64)})"
        typer.echo(
            f"would pause {named(each.source)}{already}: {counted(waiting, 'order')} would wait, and"
            f" {counted(each.queue.pending, 'order')} in flight would finish or wait"
        )


def _as_object(pause: "Pause") -> dict[str, object]:
    from ingest.operations.control.pauses import recorded

    return {"since": pause.since.isoformat(), "by": pause.by, **recorded(pause)}


def _options(names: "Sequence[str]") -> str:
    return "".join(f" --source {name}" for name in names if name)
