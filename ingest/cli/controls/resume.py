"""`ingest resume`: ends the pause of a source."""

import json
from typing import TYPE_CHECKING

import typer

from ingest.cli.controls.controlling import AllSources, chosen_to_control, named, run_with_access
from ingest.cli.invocation import actor
from ingest.cli.options import AsJson, DryRun, SourcesToChange
from ingest.cli.terminal.text import counted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.operations.control.control_access import ControlAccess
    from ingest.operations.control.pauses import SourcePause


def resume(
    *,
    source: SourcesToChange = None,
    everything: AllSources = False,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    """Resume a paused source.

    Workers continue within two seconds, at the rate that the external API permits. A source that is not paused stays as it is.

    Examples:
    `ingest resume` resumes the only source.

    `ingest resume --source shop-de` resumes one of several sources.

    `ingest resume --all` resumes every paused source.
    """
    from ingest.operations.control.pauses import preview
    from ingest.operations.control.pauses import resume as resume_sources

    sources, names = chosen_to_control(source, everything=everything)

    async def act(access: "ControlAccess") -> "tuple[Sequence[SourcePause], Sequence[str]]":
        if dry_run:
            found = await preview(access, names)
            return found, [each.source for each in found if each.pause is not None]
        return (), await resume_sources(access, names, actor())

    found, resumed = run_with_access(sources, act)
    waiting = {each.source: (each.queue.depth or 0) + each.queue.retries for each in found}
    for name in names:
        if as_json:
            report = {"source": name, "resumed": name in resumed, "dry_run": dry_run}
            typer.echo(json.dumps(report | ({"waiting": waiting[name]} if dry_run else {})))
        elif name not in resumed:
            typer.echo(f"{named(name)} is not paused")
        elif dry_run:
            typer.echo(f"would resume {named(name)}: {counted(waiting[name], 'order')} would be processed")
        else:
            typer.echo(f"{named(name)} is resumed")
