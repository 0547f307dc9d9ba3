"""`ingest dead export`: writes dead letters to a file or to standard output, for other programs."""

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import backends_of_sources, say
from ingest.cli.options import Sources
from ingest.cli.queues.criteria import Attributes, Shape, Text, filter_of
from ingest.cli.queues.dead import Ids, Reasons, Since, Until, selection_or_all
from ingest.cli.terminal.output import new_file, standard_output
from ingest.cli.terminal.text import counted
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.deliveries.dead_letter import DeadLetterEntry


class Format(StrEnum):
    """The format of the exported dead letters."""

    JSONL = "jsonl"
    CSV = "csv"


def export(  # noqa: PLR0913  the options of a command
    ids: Ids = None,
    *,
    source: Sources = None,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    text: Text = None,
    shape: Shape = None,
    attribute: Attributes = None,
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
    from ingest.cli.queues.dead.search import search
    from ingest.operations import dead_letter_export, dead_letters

    if as_json and file_format is Format.CSV:
        raise ConfigError("--json and --format csv contradict each other")
    if output == Path("-"):
        output = None
    if force and output is None:
        raise ConfigError("--force requires --output")
    selection = selection_or_all(ids, reason, since, until, filter_of(text, shape, attribute))
    sources = [*backends_of_sources(source).values()]
    with standard_output() if output is None else new_file(output, replace=force) as stream:
        chosen = (file_format or Format.JSONL).value
        stream.write(dead_letter_export.head_of(chosen))

        def write(source: str, entries: "Sequence[DeadLetterEntry]") -> None:
            stream.write(dead_letter_export.lines_of(entries, source, chosen))

        export_all = partial(dead_letters.export, sources, selection, write)
        done = search(export_all, activity="exporting", beside=stream)
    if output is not None:
        say(f"wrote {counted(done.count, 'dead letter')} to {output}")
    raise typer.Exit(1 if done.missing else 0)
