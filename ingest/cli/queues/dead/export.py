"""`ingest dead export`: writes dead letters to a file or to standard output, for other programs."""

import csv
import json
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.options import Sources
from ingest.cli.queues.dead import Ids, Reasons, Since, Until, selection_or_all
from ingest.cli.terminal.output import cell, new_file, standard_output
from ingest.cli.terminal.text import counted
from ingest.domain.deliveries.dead_letter import DeadLetterEntry
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from ingest.operations.dead_letters import Write

_CSV_COLUMNS = ("id", "source", "order_id", "reason", "error", "attempts", "dead_at", "first_enqueued_at", "worker", "replays", "replayed_at", "fields")  # fmt: skip


class Format(StrEnum):
    """The format of the exported dead letters."""

    JSONL = "jsonl"
    CSV = "csv"


def export(
    ids: Ids = None,
    *,
    source: Sources = None,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    file_format: Annotated[Format | None, typer.Option("--format", help="By default jsonl.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file. `-` is stdout.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
) -> None:
    r"""Write dead letters as JSON lines or CSV.

    It writes source by source, oldest first, and changes nothing.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    The file appears under its name when it is complete. The exit code is 1 if an ID has no dead letter.

    Examples:
    `ingest dead export > dead.jsonl` writes one JSON object per line, oldest first.

    `ingest dead export --format csv --output dead.csv --since 7d` writes the dead letters of the last week for a
    spreadsheet.

    `ingest dead export --reason not_found | jq -r .order_id | sort -u` prints the orders that the external API does
    not have.

    In JSON, bytes that are not UTF-8 become backslash escapes such as `\xff`; in CSV, all characters that are not
    printable do.
    """
    from ingest.cli.queues.dead.search import json_writer, search
    from ingest.operations import dead_letters

    if as_json and file_format is Format.CSV:
        raise ConfigError("--json and --format csv contradict each other")
    if output == Path("-"):
        output = None
    if force and output is None:
        raise ConfigError("--force requires --output")
    selection = selection_or_all(ids, reason, since, until)
    sources = [*backends_of_sources(source).values()]
    with standard_output() if output is None else new_file(output, replace=force) as stream:
        write = (_csv_writer if file_format is Format.CSV else json_writer)(stream)
        export_all = partial(dead_letters.export, sources, selection, write)
        done = search(export_all, activity="exporting", beside=stream)
    if output is not None:
        say(f"wrote {counted(done.count, 'dead letter')} to {output}")
    raise typer.Exit(1 if done.missing else 0)


def _csv_row(entry: DeadLetterEntry, source: str) -> list[str]:
    """The cells of a dead letter in a CSV file, in the order of `_CSV_COLUMNS`."""
    from ingest.operations.dead_letters import as_object

    facts = as_object(entry, source)
    facts["fields"] = json.dumps(facts["fields"])
    return [cell("" if facts[column] is None else str(facts[column])) for column in _CSV_COLUMNS]


def _csv_writer(stream: IO[str]) -> "Write":
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    return lambda source, entries: writer.writerows(_csv_row(entry, source) for entry in entries)
