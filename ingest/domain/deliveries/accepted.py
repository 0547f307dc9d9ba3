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

    Of a call that is made again under its idempotency key, the same is said again, unless it counts repeats as duplicates.

    Attributes:
        accepted: entries that this call has added.
        duplicates: orders that needed none, as their announcement still waits.
    """

    accepted: int
    duplicates: int
