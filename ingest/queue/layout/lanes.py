"""The shares of the express lane and of the main lane in a read, while both lanes have a backlog."""

from collections.abc import Sequence
from typing import Any

# While both lanes have a backlog, every tenth entry comes from the main lane.
_MAIN_SHARE = 0.1


class MainShare:
    """The entries owed to the main lane, so that the express lane does not starve it.

    With few free slots a read is for one or two entries, so the share is kept over reads, not within each.
    """

    def __init__(self) -> None:
        self._owed = 0.0

    def next(self, count: int) -> int:
        """How many of the next `count` entries are the main lane's."""
        self._owed += count * _MAIN_SHARE
        share = min(count, int(self._owed + 1e-9))
        self._owed -= share
        return share


def kept(express: Sequence[Any], main: Sequence[Any], count: int, share: int) -> tuple[int, int]:
    """How many entries of each lane are kept, from the first, where one command has read up to `count` of both."""
    from_express = min(len(express), count - min(share, len(main)))
    return from_express, min(len(main), count - from_express)
