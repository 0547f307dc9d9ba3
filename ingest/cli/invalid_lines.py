"""What stands where an ID should be, checked; what is no ID is told, up to a number."""

from collections.abc import Callable
from dataclasses import dataclass

from ingest.cli.found import Found
from ingest.domain.order import InvalidOrderId, parse_order_id

# So many bad lines are shown one by one; a file of another kind would fill the screen.
_SHOWN = 100


@dataclass(slots=True)
class InvalidLines:
    """Counts the lines of one source that hold no ID.

    Attributes:
        name: the source's, for messages.
        count: how many there were.
    """

    name: str
    count: int = 0

    def checked(self, found: Found, say: Callable[[str], None]) -> str | None:
        """The ID that was found; None if it is none, which is counted and said."""
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
            say(f"{self.name}: more than {_SHOWN} invalid lines; only their number is shown from here on")
        return None
