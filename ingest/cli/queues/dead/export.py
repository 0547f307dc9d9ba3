"""`ingest dead export`: writes dead letters to a file or to standard output, for other programs."""

from contextlib import suppress
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated

import typer

from ingest.cli.invocation import backends_of_sources, reader, say
from ingest.cli.queues.criteria import Chosen, selecting
from ingest.cli.terminal.output import is_resumable, part_of, resumable_file, standard_output
from ingest.cli.terminal.text import counted
from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.domain.errors import ConfigError, QueueUnavailable, UserError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.domain.deliveries.dead_letter import DeadLetterEntry
    from ingest.operations.failed_orders.dead_letters import Exported


class Format(StrEnum):
    """The format of the exported dead letters."""

    JSONL = "jsonl"
    CSV = "csv"


@selecting(EntryKind.DEAD_LETTERS)
def export(
    chosen: Chosen,
    *,
    rate: Annotated[
        float | None,
        typer.Option("--rate", help="At most N dead letters per second.", metavar="N", min=0.001, max=1_000_000),
    ] = None,
    file_format: Annotated[Format | None, typer.Option("--format", help="By default jsonl.")] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write to this file. `-` is stdout.", metavar="FILE")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted export to --output.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format jsonl.")] = False,
) -> None:
    r"""Write dead letters as JSON lines or CSV.

    It writes source by source, oldest first, and changes nothing.

    An ID is the ID of a dead letter, or of an order for all its dead letters.

    The file appears under its name when it is complete, and is called FILE.part until then. `--resume` with the same
    options continues an interrupted export. The exit code is 1 if an ID has no dead letter, or if Redis cannot be used
    for a partition. The command writes the other partitions, reports the missing ones, and the file stays incomplete.

    Examples:
    `ingest dead export > dead.jsonl` writes one JSON object per line, oldest first.

    `ingest dead export --format csv --output dead.csv --since 7d` writes the dead letters of the last week for a
    spreadsheet.

    `ingest dead export --output dead.jsonl --rate 500` spares Redis.

    `ingest dead export --reason not_found | jq -r .order_id | sort -u` prints the orders that the external API does
    not have.

    In JSON, bytes that are not UTF-8 become backslash escapes such as `\xff`. In CSV, so do all characters that are
    not printable.
    """
    from ingest.cli.queues.dead.search import exit_code_of, search
    from ingest.operations.failed_orders import dead_letter_export, dead_letters

    if as_json and file_format is Format.CSV:
        raise ConfigError("--json and --format csv contradict each other")
    if output == Path("-"):
        output = None
    if (force or resume) and output is None:
        raise ConfigError(f"{'--force' if force else '--resume'} requires --output")
    if resume and (force or chosen.selection.ids):
        raise ConfigError(f"--resume continues an export without {'--force' if force else 'IDs'}")
    sources = [*backends_of_sources(chosen.sources).values()]
    written_as = (file_format or Format.JSONL).value
    with standard_output() if output is None else resumable_file(output, replace=force, resume=resume) as stream:
        head = dead_letter_export.head_of(written_as)
        lines, after = _written(stream, head, written_as) if resume else (0, None)
        stream.write("" if lines else head)

        def write(source: str, entries: "Sequence[DeadLetterEntry]") -> None:
            stream.write(dead_letter_export.lines_of(entries, source, written_as))

        export_all = partial(
            dead_letters.export,
            sources,
            chosen.selection,
            write,
            reader=reader("dead export"),
            after=after,
            rate=rate,
        )
        try:
            done = search(export_all, activity="exporting", data_stream=stream)
        except (KeyboardInterrupt, QueueUnavailable):
            _say_incomplete(output)
            raise
        if done.unavailable:
            _say_incomplete(output)
            raise typer.Exit(exit_code_of(done))
    if output is not None:
        before = f", after {counted(lines, 'line')} of the interrupted export" if lines else ""
        say(f"wrote {counted(done.count, 'dead letter')} to {output}{before}")
    raise typer.Exit(exit_code_of(done))


def _say_incomplete(output: Path | None) -> None:
    if output is not None and is_resumable(part_of(output)):
        say(f"the export is not complete: run it again with --resume to continue {part_of(output)}")


def _written(stream: IO[str], head: str, file_format: str) -> "tuple[int, Exported | None]":
    """The number of lines that an interrupted export has written, and the last dead letters of its partitions, if any.

    Raises:
        UserError: the file is not an export in this format.
    """
    from ingest.operations.failed_orders import dead_letter_export
    from ingest.operations.failed_orders.dead_letters import suffix_of

    stream.seek(0)
    lines, after = 0, dict[tuple[str, str], str]()
    # Bytes that are not UTF-8 are no export either.
    with suppress(UnicodeDecodeError):
        while line := stream.readline():
            lines += 1
            if line == head:
                continue
            if (exported := dead_letter_export.exported_in(line, file_format)) is None:
                break
            source, entry_id = exported
            part = source, suffix_of(entry_id)
            after.pop(part, None)
            after[part] = entry_id.removesuffix(part[1])
        else:
            return lines, after or None
    raise UserError(f"the interrupted export is not in the format {file_format}: use its --format, or --force")
