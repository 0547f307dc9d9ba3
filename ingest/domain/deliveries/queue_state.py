"""What a queue and its consumer group look like from outside, at one moment."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Lane(StrEnum):
    """One of the streams that make up a queue; workers read the express lane first."""

    MAIN = "main"
    EXPRESS = "express"


@dataclass(frozen=True, slots=True)
class LaneState:
    """What one lane holds. The defaults are those of an empty lane.

    Attributes:
        depth: entries not yet delivered to a consumer; None where Redis cannot tell.
        pending: entries delivered and not yet acked.
        oldest_age: seconds since the oldest order of the lane was first announced; None in an empty lane.
    """

    depth: int | None = 0
    pending: int = 0
    oldest_age: float | None = None


def _empty_lanes() -> Mapping[Lane, LaneState]:
    return {lane: LaneState() for lane in Lane}


@dataclass(frozen=True, slots=True)
class QueueState:
    """What the queue and its group hold. The defaults are those of an empty queue.

    Attributes:
        depth: entries not yet delivered to a consumer, in all lanes; None where Redis cannot tell.
        pending: entries delivered and not yet acked, in all lanes.
        oldest_age: seconds since the oldest unfinished order was first announced, the retry set included; None
            in an empty queue.
        consumers: consumers of the group.
        retries: entries in the retry set.
        retries_due: those of them whose time has come; a worker moves them back into the queue.
        dead: dead letters.
        lanes: depth, pending entries and oldest age of each lane.
    """

    depth: int | None = 0
    pending: int = 0
    oldest_age: float | None = None
    consumers: int = 0
    retries: int = 0
    retries_due: int = 0
    dead: int = 0
    lanes: Mapping[Lane, LaneState] = field(default_factory=_empty_lanes)
