"""Prints the groups of dead letters or retries."""

from functools import partial
from typing import TYPE_CHECKING

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.queues.entry_lists import groups_of
from ingest.cli.terminal.progress import run_with_progress
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.operations.failed_orders.group_surveys import group

if TYPE_CHECKING:
    from ingest.cli.queues.criteria import Chosen


def print_groups(kind: EntryKind, chosen: "Chosen", *, as_json: bool) -> None:
    """Print one line for each group, the largest first."""
    sources = [*backends_of_sources(chosen.sources).values()]
    found = run_with_progress("reading", partial(group, sources, kind, chosen.selection))
    for each in found.missing:
        say(f"the {kind.nouns} of {each.queue} are missing: {each.reason}")
    groups_of(kind).show(found.groups, as_json=as_json, is_complete=not found.missing)
    raise typer.Exit(1 if found.missing else 0)
