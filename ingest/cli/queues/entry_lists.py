"""The lists of dead letters and retries, and their groups."""

import json
from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import typer
from msgspec.structs import asdict

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.listing import LONGEST_ERROR, Listing
from ingest.cli.terminal.progress import run_with_progress
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_age, format_time
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.operations.failed_orders.entry_json import ShownGroup, listed
from ingest.operations.failed_orders.group_surveys import group
from ingest.operations.json_types import response_of

if TYPE_CHECKING:
    from ingest.cli.queues.criteria import Chosen
    from ingest.domain.deliveries.dead_letter import DeadLetterEntry
    from ingest.domain.orders.order_state import RetryEntry
    from ingest.operations.failed_orders.groups import EntryGroup

Unavailable = Mapping[tuple[str, str], str]
"""Why partitions cannot be read, each with its source."""


def _age(moment: datetime | None) -> str:
    return "" if moment is None else format_age(moment, datetime.now(UTC))


def _replays(entry: "DeadLetterEntry") -> str:
    if not entry.replays:
        return ""
    return f"{entry.replays}, {_age(entry.replayed_at)}" if entry.replayed_at else str(entry.replays)


def _error(entry: "DeadLetterEntry") -> str:
    seen = f"seen {entry.seen:,} times, last {_age(entry.last_seen_at)}: " if entry.last_seen_at else ""
    return seen + printable(entry.error, LONGEST_ERROR)


DEAD_LETTERS: "Listing[tuple[str, DeadLetterEntry]]" = Listing(
    {
        "id": lambda found: found[1].entry_id,
        "order": lambda found: printable(found[1].order_id or "", 128),
        "reason": lambda found: printable(found[1].reason, 64),
        "attempts": lambda found: "" if found[1].attempts is None else str(found[1].attempts),
        "dead since": lambda found: _age(found[1].dead_at),
        "replays": lambda found: _replays(found[1]),
        "error": lambda found: _error(found[1]),
    },
    names=2,
    facts=5,
    nothing="no dead letters",
    as_json=lambda found: json.dumps(asdict(listed(found[1], found[0]))),
    source=lambda found: found[0],
    below=lambda row: (f"replayed {row[-2]}: " if row[-2] else "") + row[-1],
)
RETRIES: "Listing[tuple[str, RetryEntry]]" = Listing(
    {
        "order": lambda found: printable(found[1].order_id or "-", 128),
        "next attempt": lambda found: format_time(found[1].next_try_at),
        "attempt": lambda found: str(found[1].attempt),
        "reason": lambda found: printable(found[1].reason, 64),
        "error": lambda found: printable(found[1].error, LONGEST_ERROR),
    },
    names=1,
    facts=4,
    nothing="no retries",
    as_json=lambda found: json.dumps(asdict(listed(found[1], found[0]))),
    source=lambda found: found[0],
)


def print_groups(kind: EntryKind, chosen: "Chosen", *, as_json: bool) -> None:
    """Print one line for each group, the largest first."""
    sources = [*backends_of_sources(chosen.sources).values()]
    found = run_with_progress("reading", partial(group, sources, kind, chosen.selection))
    for each in found.missing:
        say(f"the {kind.nouns} of {each.queue} are missing: {each.reason}")
    _groups_of(kind).show(found.groups, as_json=as_json, is_complete=not found.missing)
    raise typer.Exit(1 if found.missing else 0)


def _groups_of(kind: EntryKind) -> "Listing[EntryGroup]":
    """The list of groups."""
    return Listing(
        {
            "count": lambda group: f"{group.count:,}",
            "reason": lambda group: printable(group.reason, 64),
            "newest": lambda group: _age(group.newest),
            "oldest": lambda group: _age(group.oldest),
            "orders": lambda group: printable(" ".join(group.order_ids), 60),
            "error": lambda group: printable(group.shape, 200),
        },
        names=1,
        facts=5,
        nothing=f"no {kind.nouns}",
        as_json=lambda group: json.dumps(asdict(response_of(ShownGroup, group))),
        source=lambda group: group.source,
    )


def say_missing(kind: EntryKind, missing: Collection[str], unavailable: Unavailable) -> None:
    """Report IDs that match no entry, and partitions that cannot be read."""
    for each in sorted(missing):
        say(f"no {kind.noun} for {printable(each)}")
    for (_, queue), error in unavailable.items():
        say(f"the {kind.nouns} of {queue} are missing: {error}")


def unavailable_objects(unavailable: Unavailable) -> list[dict[str, str]]:
    """The JSON of each partition that cannot be read."""
    return [{"source": source, "queue": queue, "unavailable": error} for (source, queue), error in unavailable.items()]


def unavailable_lines(unavailable: Unavailable) -> Iterator[str]:
    """A line of JSON for each of them."""
    return (json.dumps(each) + "\n" for each in unavailable_objects(unavailable))
