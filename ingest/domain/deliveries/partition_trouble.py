"""The trouble of one partition, whose server is slow, denies access, moves the slot or is unavailable."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum


class TroubleKind(StrEnum):
    """How a server troubles its partitions."""

    SLOW = "slow"
    DENIED = "denied"
    RESHARDING = "resharding"
    UNAVAILABLE = "unavailable"


@dataclass(frozen=True, slots=True)
class PartitionTrouble:
    """The trouble of one partition.

    Attributes:
        queue: the name of the partition's queue.
        server: its address, as far as it is known.
        kind: of the trouble.
        error: of the call that failed, or how late the server was.
        since: when it began, in Unix seconds.
    """

    queue: str
    server: str
    kind: TroubleKind
    error: str
    since: float

    @property
    def text(self) -> str:
        """The trouble in one line."""
        return f"the partition {self.queue} on {self.server or 'an unknown server'} is {self.kind}: {self.error}"

    @property
    def reason(self) -> str:
        """Why the partition cannot be read, with its server if that is known."""
        return f"{self.server} is {self.kind}: {self.error}" if self.server else self.error


def by_queue(*reports: Iterable[PartitionTrouble]) -> Mapping[str, PartitionTrouble]:
    """Return the trouble of each partition. Later reports replace earlier ones."""
    return {each.queue: each for report in reports for each in report}
