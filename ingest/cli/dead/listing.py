"""A number of dead letters that fits a screen: looked for, and shown."""

from collections.abc import Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import UTC, datetime

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from ingest.cli.common import say
from ingest.cli.dead.moments import age, shown
from ingest.cli.dead.output import standard_output
from ingest.cli.dead.progress import Display
from ingest.cli.dead.table import print_rows
from ingest.cli.dead.texts import as_json, printable, texts
from ingest.cli.terminal import console_on
from ingest.domain.dead_letter import DeadLetterEntry, Selection
from ingest.queue.dead_letters import DeadLetters
from ingest.settings import Settings

_LONGEST_FIELD = 2_000


@dataclass(frozen=True, slots=True)
class Found:
    """What was looked for.

    Attributes:
        letters: the newest first.
        more: whether there are more than were asked for.
        exit_code: 1 if an ID stood for none.
    """

    letters: Sequence[DeadLetterEntry]
    more: bool
    exit_code: int


async def look(settings: Settings, selection: Selection, limit: int | None) -> Found:
    """Look for the newest dead letters that are meant, and report IDs that stand for none."""
    letters: list[DeadLetterEntry] = []
    examined = 0
    url = settings.redis_url.get_secret_value()
    async with DeadLetters.connect(url, settings.stream) as dead_letters:
        with Display("searching", await dead_letters.count()) as display:
            async with aclosing(dead_letters.newest_first(selection)) as pages:
                async for page in pages:
                    letters.extend(page.letters)
                    examined += page.examined
                    display.update(examined)
                    if limit is not None and len(letters) > limit:
                        break
    more = limit is not None and len(letters) > limit
    named = frozenset[str]().union(*(selection.names(letter) for letter in letters))
    missing = frozenset() if more else selection.ids - named
    report_missing(missing)
    return Found(letters[:limit], more, 1 if missing else 0)


def report_missing(ids: frozenset[str]) -> None:
    """Say which IDs stand for no dead letter, or for none that meets the other criteria."""
    for missing in sorted(ids):
        say(f"no dead letter for {printable(missing)}")


def show_json(letters: Sequence[DeadLetterEntry]) -> None:
    """One JSON object a line."""
    with standard_output() as stream:
        stream.writelines(as_json(letter) + "\n" for letter in letters)


def show_table(found: Found, limit: int) -> None:
    """Each in as many columns as the terminal has room for."""
    if not found.letters:
        say("no dead letters")
        return
    with standard_output() as stream:
        print_rows(found.letters, datetime.now(UTC), stream)
    if found.more:
        say(f"these are the newest {limit:,} of more: --limit shows more, `ingest dead export` all")


def show_facts(letters: Sequence[DeadLetterEntry]) -> None:
    """All there is to know about each."""
    now = datetime.now(UTC)
    for letter in letters:
        facts = Table(box=None, show_header=False, pad_edge=False)
        facts.add_column(style="dim", no_wrap=True)
        facts.add_column(overflow="fold")
        for name, value in [*_facts(letter, now), *texts(letter.fields).items()]:
            facts.add_row(Text(printable(name, 64)), Text(_field(value)))
        _print(facts if letter is letters[0] else Group("", facts))


def _facts(letter: DeadLetterEntry, now: datetime) -> Iterator[tuple[str, str]]:
    def told(moment: datetime | None) -> str:
        return "" if moment is None else f"{shown(moment)} ({age(moment, now)})"

    yield "id", letter.entry_id
    yield "order", letter.order_id or ""
    yield "reason", letter.reason
    yield "error", letter.error
    yield "attempts", "" if letter.attempts is None else str(letter.attempts)
    yield "first enqueued", told(letter.first_enqueued_at)
    yield "dead since", told(letter.dead_at)
    yield "worker", letter.worker or ""
    yield "replays", str(letter.replays)
    if letter.replayed_at:
        yield "last replay", told(letter.replayed_at)


def _field(value: str) -> str:
    rest = len(value) - _LONGEST_FIELD
    return printable(value[:_LONGEST_FIELD]) + (f"… and {rest:,} characters: --json shows all" if rest > 0 else "")


def _print(table: RenderableType) -> None:
    with standard_output() as stream:
        console_on(stream).print(table)
