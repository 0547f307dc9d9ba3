"""Checks the IDs of a source, and reports invalid lines, up to a limit."""

from collections.abc import Callable
from dataclasses import dataclass

from ingest.cli.id_sources.found import Found
from ingest.domain.orders.order import InvalidOrderId, parse_order_id

# At most N invalid lines are shown. A file that is not a list of IDs would fill the screen.
_SHOWN = 100


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
