"""Dead letters written out, page by page, however many they are."""

import csv
from collections.abc import Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import IO

from ingest.cli.common import say
from ingest.cli.dead.listing import report_missing
from ingest.cli.dead.output import new_file, standard_output
from ingest.cli.dead.progress import Display
from ingest.cli.dead.texts import COLUMNS, as_json, as_row, counted
from ingest.domain.dead_letter import DeadLetterEntry, Selection
from ingest.queue.dead_letters import DeadLetters
from ingest.settings import Settings

Write = Callable[[Sequence[DeadLetterEntry]], None]


def json_lines(stream: IO[str]) -> Write:
    """Writes one JSON object a line."""
    return lambda letters: stream.writelines(as_json(letter) + "\n" for letter in letters)


def csv_rows(stream: IO[str]) -> Write:
    """Writes CSV with a header."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    return lambda letters: writer.writerows(as_row(letter) for letter in letters)


async def write(
    settings: Settings, selection: Selection, form: Callable[[IO[str]], Write], path: Path | None, *, replace: bool
) -> bool:
    """Write those that are meant; return whether each of the IDs stood for one."""
    url = settings.redis_url.get_secret_value()
    async with DeadLetters.connect(url, settings.stream) as dead_letters:
        with standard_output() if path is None else new_file(path, replace=replace) as stream:
            found, count = await _write_all(dead_letters, selection, form(stream))
    if path is not None:
        say(f"wrote {counted(count)} to {path}")
    report_missing(selection.ids - found)
    return found >= selection.ids


async def _write_all(dead_letters: DeadLetters, selection: Selection, put: Write) -> tuple[set[str], int]:
    # What is buried from now on is left out: a queue that fails as fast as this writes would never end.
    newest = await dead_letters.newest()
    found: set[str] = set()
    count = examined = 0
    with Display("exporting", await dead_letters.count()) as display:
        async with aclosing(dead_letters.oldest_first(selection, newest=newest)) as pages:
            async for page in pages:
                put(page.letters)
                found.update(*(selection.names(letter) for letter in page.letters))
                count += len(page.letters)
                examined += page.examined
                display.update(examined)
    return found, count
