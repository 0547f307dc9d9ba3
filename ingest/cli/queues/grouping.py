"""Prints the groups of dead letters or retries."""

import json
from functools import partial
from typing import TYPE_CHECKING

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.progress import run_with_progress
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_age
from ingest.cli.terminal.width import Table, print_table
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.source_name import UNNAMED
from ingest.operations.failed_orders.group_surveys import group

if TYPE_CHECKING:
    from datetime import datetime

    from ingest.cli.queues.criteria import Chosen
    from ingest.operations.failed_orders.groups import EntryGroup

_TABLE = Table(("count", "reason", "newest", "oldest", "orders", "error"), names=1, facts=5)
_LONGEST = 200


def print_groups(kind: EntryKind, chosen: "Chosen", *, as_json: bool) -> None:
    """Print one line for each group, the largest first."""
    sources = backends_of_sources(chosen.sources)
    found = run_with_progress("reading", partial(group, [*sources.values()], kind, chosen.selection))
    with_source = UNNAMED not in sources
    for each in found.missing:
        say(f"the {kind.nouns} of {each.queue} are missing: {each.reason}")
    if as_json:
        with standard_output() as stream:
            stream.writelines(json.dumps(group.as_dict()) + "\n" for group in found.groups)
    elif not found.groups and not found.missing:
        say(f"no {kind.nouns}")
    elif found.groups:
        rows = [(group.source, *_row(group)) if with_source else _row(group) for group in found.groups]
        table = _TABLE.with_column("source") if with_source else _TABLE
        print_table(table, rows, [row[-1] for row in rows])
    raise typer.Exit(1 if found.missing else 0)


def _row(group: "EntryGroup") -> tuple[str, ...]:
    return (
        f"{group.count:,}",
        printable(group.reason, 64),
        _age(group.newest),
        _age(group.oldest),
        printable(" ".join(group.order_ids), 60),
        printable(group.shape, _LONGEST),
    )


def _age(moment: "datetime | None") -> str:
    from datetime import UTC, datetime

    return "" if moment is None else format_age(moment, datetime.now(UTC))
