"""`ingest dead export`: all dead letters, or some, for other programs."""

import asyncio
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from ingest.cli.dead.options import Ids, Reasons, Since, Until
from ingest.domain.errors import ConfigError

EPILOG = """
Examples:

`ingest dead export > dead.jsonl` writes one JSON object a line, oldest first.

`ingest dead export --format csv --output dead.csv --since 7d` writes last week's for a spreadsheet.

`ingest dead export --reason not_found | jq -r .order_id | sort -u` is what the external API does not know.

In JSON, bytes that are not UTF-8 stand as backslash escapes such as `\\xff`; in CSV, all that is not printable does.
"""


class Format(StrEnum):
    """How dead letters are written."""

    JSONL = "jsonl"
    CSV = "csv"


def export(
    ids: Ids = None,
    *,
    reason: Reasons = None,
    since: Since = None,
    until: Until = None,
    file_format: Annotated[Format | None, typer.Option("--format", help="By default jsonl.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write into this file.", metavar="FILE")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
) -> None:
    """Write dead letters as JSON lines or CSV, oldest first. Changes nothing.

    A file appears under its name only when it is whole. The exit code is 1 if an ID stands for none.
    """
    from ingest.cli.common import start
    from ingest.cli.dead.options import chosen_or_all
    from ingest.cli.dead.writing import csv_rows, json_lines, write

    if as_json and file_format is Format.CSV:
        raise ConfigError("--json and --format csv contradict each other")
    if force and output is None:
        raise ConfigError("--force goes with --output")
    selection = chosen_or_all(ids, reason, since, until)
    form = csv_rows if file_format is Format.CSV else json_lines
    is_complete = asyncio.run(write(start(), selection, form, output, replace=force))
    raise typer.Exit(0 if is_complete else 1)
