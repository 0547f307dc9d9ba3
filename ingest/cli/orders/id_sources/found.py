"""The content of a source of IDs, with invalid lines and the error that ended the reading."""

from collections.abc import Callable
from dataclasses import dataclass

from ingest.domain.errors import UserError
from ingest.domain.orders.order import InvalidOrderId, parse_order_id

# No line with an ID is longer. A file that is not a list of IDs may be one line of a gigabyte.
LONGEST_LINE = 1024 * 1024
# At most N invalid lines are shown. A file that is not a list of IDs would fill the screen.
_SHOWN = 100


class UnreadableSource(UserError):
    """A file that cannot be opened, or is not a list of IDs."""


@dataclass(frozen=True, slots=True)
class Found:
    """One place where an ID is expected.

    Attributes:
        line: its number, from 1, or the position of an argument.
        text: the content of the line, or None if it cannot be read.
        problem: why it cannot be read.
        position: bytes read so far, for progress.
    """

    line: int
    text: str | None
    problem: str = ""
    position: int = 0


@dataclass(slots=True)
class InvalidLines:
    """Counts the invalid lines of one source.

    Attributes:
        name: the source's name, for messages.
        count: invalid lines so far.
    """

    name: str
    count: int = 0

    def checked(self, found: Found, say: Callable[[str], None]) -> str | None:
        """The ID, or None if it is invalid, which is counted and reported."""
        problem = found.problem
        if found.text is not None:
            try:
                return parse_order_id(found.text)
            except InvalidOrderId as error:
                problem = str(error)
        self.count += 1
        if self.count <= _SHOWN:
            say(f"{self.name}, line {found.line}: {problem}")
        elif self.count == _SHOWN + 1:
            say(f"{self.name}: more than {_SHOWN} invalid lines; from here on, they are only counted")
        return None
