"""The result of a call that enqueues orders."""

from dataclasses import dataclass
from enum import StrEnum


class Durability(StrEnum):
    """The guarantee for orders once the call is confirmed."""

    MEMORY = "memory"
    FSYNC = "fsync"
    REPLICATED = "replicated"


@dataclass(frozen=True, slots=True)
class Accepted:
    """The orders that are now in the queue.

    A call repeated under its idempotency key returns the same numbers, unless it counts repeats as duplicates.

    Attributes:
        accepted: entries that this call has added.
        duplicates: orders that were not added because an earlier entry still waits.
    """

    accepted: int
    duplicates: int
