"""How commands print a list: as a table in the width of the terminal, or as one JSON object per line."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from ingest.cli.invocation import say
from ingest.cli.terminal.output import standard_output
from ingest.cli.terminal.width import Table, width_of

T = TypeVar("T")

LONGEST_ERROR = 100
"""Characters of an error in a table."""


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """The columns of a list.

    Attributes:
        columns: the text of each column by its title.
        names: the first columns, which identify the row.
        facts: the first columns that stay together on a narrow terminal.
        nothing: the message for an empty list.
        as_json: an item as JSON on one line.
        source: the name of an item's source, or None if the table never begins with it.
        below: the text below a row on a narrow terminal, given its columns. Defaults to the last column.
    """

    columns: Mapping[str, Callable[[T], str]]
    names: int
    facts: int
    nothing: str
    as_json: Callable[[T], str]
    source: Callable[[T], str] | None = None
    below: Callable[[Sequence[str]], str] = lambda row: row[-1]

    def lines(self, found: Sequence[T], width: int) -> Iterator[str]:
        """The table. It begins with the source if an item belongs to a named one."""
        table, texts = Table([*self.columns], self.names, self.facts), [*self.columns.values()]
        if self.source is not None and any(map(self.source, found)):
            table, texts = table.with_column("source"), [self.source, *texts]
        rows = [[text(item) for text in texts] for item in found]
        yield from table.lines(rows, list(map(self.below, rows)), width)

    def show(self, found: Sequence[T], *, as_json: bool, limit: int | None = None, is_complete: bool = True) -> None:
        """Print a list to standard output.

        Args:
            found: the items. One more than `limit` shows that there are more.
            as_json: whether to print JSON.
            limit: prints at most this number of them.
            is_complete: whether an empty list means that there are none.
        """
        shown = found[:limit]
        with standard_output() as stream:
            lines = map(self.as_json, shown) if as_json else self.lines(shown, width_of(stream)) if shown else ()
            stream.writelines(line + "\n" for line in lines)
        if not shown and is_complete and not as_json:
            say(self.nothing)
        if limit is not None and len(found) > limit:
            say_more(limit)


def say_more(limit: int, others: str = "") -> None:
    """Report that a list continues. `others` names a command without a limit."""
    say(f"there are more than these {limit:,}: --limit lists more{others}")


def compact(*texts: str) -> str:
    """The texts that are not empty, side by side."""
    return "  ".join(filter(None, texts))
