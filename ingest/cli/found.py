"""What a source of IDs yields, and how it fails."""

from dataclasses import dataclass

from ingest.domain.errors import UserError

# No line with an ID is longer; a file of another kind may be one line of a gigabyte.
LONGEST_LINE = 1024 * 1024


class UnreadableSource(UserError):
    """A file that cannot be opened, or is not what it should be."""


@dataclass(frozen=True, slots=True)
class Found:
    """One place where an ID should be.

    Attributes:
        line: its number, from 1; of arguments, their position.
        text: what stands there; None if nothing can be read from it.
        problem: why not.
        position: bytes read so far, for progress.
    """

    line: int
    text: str | None
    problem: str = ""
    position: int = 0
