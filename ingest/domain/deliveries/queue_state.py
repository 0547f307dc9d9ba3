"""A snapshot of a queue and its consumer group."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Lane(StrEnum):
    """One of the two streams of a queue. Workers read the express lane first."""

    MAIN = "main"
    EXPRESS = "express"


@dataclass(frozen=True, slots=True)
class LaneState:
    """The state of one lane. The defaults describe an empty lane.

    Attributes:
        depth: entries not yet delivered to a consumer, or None when Redis cannot count them.
        pending: entries delivered and not yet acked.
        oldest_age: seconds since the oldest order of the lane was first enqueued, or None in an empty lane.
    """

    depth: int | None = 0
    pending: int = 0
    oldest_age: float | None = None


def _empty_lanes() -> Mapping[Lane, LaneState]:
    return {lane: LaneState() for lane in Lane}


@dataclass(frozen=True, slots=True)
class QueueState:
    """The state of the queue and its group. The defaults describe an empty queue.

    Attributes:
        depth: entries not yet delivered to a consumer, in all lanes, or None when Redis cannot count them.
        pending: entries delivered and not yet acked, in all lanes.
        oldest_age: seconds since the oldest unfinished order was first enqueued, including the retry set, or None
            in an empty queue.
        retries_due: entries of the retry set that are due, which a worker moves back into the queue.
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
