"""`ingest backfill list`: lists backfills, the newest first."""

from typing import TYPE_CHECKING

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.options import AsJson, Limit, Sources
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.text import printable
from ingest.cli.terminal.times import format_time
from ingest.cli.terminal.width import Table, print_table
from ingest.domain.source_name import UNNAMED
from ingest.process.interrupt import run_interruptible

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.operating.jobs import Job

_TABLE = Table(
    ("id", "state", "listed", "missing", "outdated", "since", "until", "requested by", "problem"), names=1, facts=5
)
_LONGEST_ERROR = 100


def list_(*, source: Sources = None, limit: Limit = 50, as_json: AsJson = False) -> None:
    """List backfills, the newest first. Changes nothing.

    Missing and outdated orders were enqueued, except in a dry run. A waiting backfill is continued by a worker within a minute, or by `ingest backfill resume`.

    Examples:
    `ingest backfill list` lists the newest 50 of all sources.

    `ingest backfill list --source shop-de --json` prints one JSON object per line.
    """
    from ingest.cli.orders.backfill.running import as_text
    from ingest.cli.queues.bulk import newest
    from ingest.domain.operating.jobs import JobKind

    sources = backends_of_sources(source)
    found = run_interruptible(newest(sources, limit, [JobKind.BACKFILL]))
    if as_json:
        with standard_output() as stream:
            stream.writelines(as_text(each) + "\n" for each in found)
    elif found:
        _print_table(found, with_source=UNNAMED not in sources)
    else:
        say("no backfills")
    raise typer.Exit


def _print_table(found: "Sequence[Job]", *, with_source: bool) -> None:
    from ingest.domain.operating.backfill import backfill_as_dict

    rows = [
        (
            *([each["source"]] if with_source else ()),
            str(each["id"]),
            f"{each['state']} (dry run)" if each["dry_run"] else each["state"],
            f"{each['listed']:,}",
            f"{each['missing']:,}",
            f"{each['outdated']:,}",
            format_time(each["since"]),
            format_time(each["until"]),
            printable(each["requested_by"], 64),
            printable(each["error"] or "", _LONGEST_ERROR),
        )
        for each in map(backfill_as_dict, found)
    ]
    table = _TABLE.with_column("source") if with_source else _TABLE
    # A problem is first, because a narrow terminal cuts the line.
    print_table(table, rows, ["  ".join(filter(None, (row[-1], f"{row[-4]} to {row[-3]}", row[-2]))) for row in rows])
