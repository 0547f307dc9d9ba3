"""What a source of IDs yields, and the error it raises."""

from dataclasses import dataclass

from ingest.domain.errors import UserError

# No line with an ID is longer. A file that is not a list of IDs may be one line of a gigabyte.
LONGEST_LINE = 1024 * 1024


class UnreadableSource(UserError):
    """A file that cannot be opened, or is not a list of IDs."""


@dataclass(frozen=True, slots=True)
class Found:
    """One place where an ID is expected.

    Attributes:
        line: its number, from 1, or the position of an argument.
        text: what was read there, or None if it cannot be read.
        problem: why it cannot be read.
        position: bytes read so far, for progress.
    """

    line: int
    text: str | None
    problem: str = ""
    position: int = 0
