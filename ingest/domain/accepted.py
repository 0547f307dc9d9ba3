"""What a call that announces orders has done."""

from dataclasses import dataclass
from enum import StrEnum


class Durability(StrEnum):
    """What is certain when an announcement is confirmed."""

    MEMORY = "memory"
    FSYNC = "fsync"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True)
class Accepted:
    """Orders that are in the queue now.

    Attributes:
        accepted: entries that this call has added.
        duplicates: orders that needed none: their announcement still waits, or the same call was made before.
    """

    accepted: int
    duplicates: int
