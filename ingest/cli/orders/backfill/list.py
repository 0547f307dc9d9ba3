"""`ingest backfill list`: lists backfills, the newest first."""

from typing import TYPE_CHECKING

from ingest.cli.invocation import backends_of_sources
from ingest.cli.listing import LONGEST_ERROR, Listing, compact
from ingest.cli.options import AsJson, Limit, Sources
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_time
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from ingest.domain.operating.backfill import Backfill


def list_(*, source: Sources = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List backfills, the newest first. Changes nothing.

    Missing and outdated orders were enqueued, except in a dry run. A waiting backfill is continued by a worker within a minute, or by `ingest backfill resume`.

    Examples:
    `ingest backfill list` lists the newest 50 of all sources.

    `ingest backfill list --source shop-de --json` prints one JSON object per line.
    """
    from ingest.cli.orders.backfill.found import newest

    sources = [*backends_of_sources(source).values()]
    _BACKFILLS.show(run_interruptible(newest(sources, limit + 1)), as_json=as_json, limit=limit)


def _as_json(backfill: "Backfill") -> str:
    from ingest.cli.orders.backfill.found import as_text

    return as_text(backfill)


_BACKFILLS: "Listing[Backfill]" = Listing(
    {
        "id": lambda backfill: str(backfill.id),
        "state": lambda backfill: backfill.state.value + (" (dry run)" if backfill.request.dry_run else ""),
        "listed": lambda backfill: f"{backfill.progress.listed:,}",
        "missing": lambda backfill: f"{backfill.progress.missing:,}",
        "outdated": lambda backfill: f"{backfill.progress.outdated:,}",
        "since": lambda backfill: format_time(backfill.request.since),
        "until": lambda backfill: format_time(backfill.request.until),
        "requested by": lambda backfill: printable(backfill.requested_by, 64),
        "problem": lambda backfill: printable(backfill.error or "", LONGEST_ERROR),
    },
    names=1,
    facts=5,
    nothing="no backfills",
    as_json=_as_json,
    source=lambda backfill: backfill.source,
    # A problem is first, because a narrow terminal cuts the line.
    below=lambda row: compact(row[-1], f"{row[-4]} to {row[-3]}", row[-2]),
)
