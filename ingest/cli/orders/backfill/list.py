"""`ingest backfill list`: lists backfills, the newest first."""

import json
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from ingest.cli.invocation import backends_of_sources
from ingest.cli.listing import LONGEST_ERROR, Listing, compact
from ingest.cli.options import AsJson, Limit, Sources
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_time
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.operations.jobs.shown import ShownBackfill


def list_(*, source: Sources = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List backfills, the newest first. Changes nothing.

    Missing and outdated orders were enqueued, except in a dry run. A worker continues a waiting backfill within 20 seconds, or you do with `ingest backfill resume`.

    Examples:
    `ingest backfill list` lists the newest 50 of all sources.

    `ingest backfill list --source shop-de --json` prints one JSON object per line.
    """
    from ingest.cli.queues.bulk import newest
    from ingest.domain.operating.jobs import JobKind
    from ingest.operations.jobs.shown import shown_backfill

    found = run_interruptible(newest(backends_of_sources(source), limit + 1, [JobKind.BACKFILL]))
    _BACKFILLS.show([*map(shown_backfill, found)], as_json=as_json, limit=limit)


_BACKFILLS: "Listing[ShownBackfill]" = Listing(
    {
        "id": lambda backfill: str(backfill.id),
        "state": lambda backfill: backfill.state + (" (dry run)" if backfill.dry_run else ""),
        "listed": lambda backfill: f"{backfill.listed:,}",
        "missing": lambda backfill: f"{backfill.missing:,}",
        "outdated": lambda backfill: f"{backfill.outdated:,}",
        "since": lambda backfill: format_time(backfill.since),
        "until": lambda backfill: format_time(backfill.until),
        "requested by": lambda backfill: printable(backfill.requested_by, 64),
        "problem": lambda backfill: printable(backfill.error or "", LONGEST_ERROR),
    },
    names=1,
    facts=5,
    nothing="no backfills",
    as_json=lambda backfill: json.dumps(asdict(backfill), default=format_time),
    source=lambda backfill: backfill.source,
    # A problem is first, because a narrow terminal cuts the line.
    below=lambda row: compact(row[-1], f"{row[-4]} to {row[-3]}", row[-2]),
)
