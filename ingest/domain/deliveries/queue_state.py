"""A snapshot of a queue and its consumer group."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum


class Lane(StrEnum):
    """One of the two streams of a queue. Workers read the express lane first."""

    MAIN = "main"
    EXPRESS = "express"


# Seconds by which entry IDs may be ahead of Redis' clock. They may be an hour or two ahead after an operator has set the clock back.
FAR_AHEAD = 86_400.0


@dataclass(frozen=True, slots=True)
class LaneState:
    """The state of one lane. The defaults describe an empty lane.

    Attributes:
        depth: entries not yet delivered to a consumer, or None when Redis cannot count them.
        pending: entries delivered and not yet acked.
        oldest_age: seconds since the oldest order of the lane was first enqueued, or None in an empty lane.
        ids_ahead: seconds by which the last entry ID is ahead of Redis' clock. The entry may be gone.
        is_exhausted: whether the last entry has the largest ID, so that the lane accepts no further entries.
    """

    depth: int | None = 0
    pending: int = 0
    oldest_age: float | None = None
    ids_ahead: float = 0.0
    is_exhausted: bool = False


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

    @property
    def in_queue(self) -> int | None:
        """The number of orders that are not finished, without dead letters, or None if they cannot be counted."""
        return None if self.depth is None else self.depth + self.pending + self.retries

    @property
    def id_problems(self) -> list[str]:
        """The lanes with entry IDs that are too far ahead, one line each."""
        lines = []
        for lane, each in self.lanes.items():
            if each.is_exhausted:
                lines.append(f"the {lane} lane has used up its entry IDs, and accepts no orders")
            elif each.ids_ahead > FAR_AHEAD:
                days = each.ids_ahead / 86_400
                lines.append(
                    f"entry IDs of the {lane} lane are {days:,.0f} d ahead of Redis' clock, which hides the age of orders"
                )
        return lines


def total_of(partitions: Iterable[QueueState]) -> QueueState:
    """Return the state of a queue from the states of its partitions, which are at least one."""
    [first, *others] = states = [*partitions]
    if not others:
        return first
    return QueueState(
        depth=_sum(state.depth for state in states),
        pending=sum(state.pending for state in states),
        oldest_age=_oldest(state.oldest_age for state in states),
        # A process reads all partitions under one name.
        consumers=max(state.consumers for state in states),
        retries=sum(state.retries for state in states),
        retries_due=sum(state.retries_due for state in states),
        dead=sum(state.dead for state in states),
        lanes={lane: _lane([state.lanes[lane] for state in states]) for lane in first.lanes},
    )


def _lane(partitions: Sequence[LaneState]) -> LaneState:
    return LaneState(
        _sum(lane.depth for lane in partitions),
        sum(lane.pending for lane in partitions),
        _oldest(lane.oldest_age for lane in partitions),
        max(lane.ids_ahead for lane in partitions),
        any(lane.is_exhausted for lane in partitions),
    )


def _sum(depths: Iterable[int | None]) -> int | None:
    """Return the sum, or None if one of them is unknown."""
    known = [*depths]
    return None if None in known else sum(depth for depth in known if depth is not None)


def _oldest(ages: Iterable[float | None]) -> float | None:
    return max((age for age in ages if age is not None), default=None)
