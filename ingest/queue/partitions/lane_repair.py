"""Repairs the lanes of a queue whose entry IDs are too far ahead, while workers and producers run.

A program that may enqueue can choose the ID of an entry. After the largest ID, Redis rejects every further entry of that stream. See
`repair_lane.lua` for the steps. If the process dies between two of them, the next repair continues.
"""

from dataclasses import dataclass

from redis.asyncio import Redis

from ingest.domain.deliveries.queue_state import FAR_AHEAD, Lane
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.groups import groups_of
from ingest.queue.redis.connection import translated
from ingest.queue.redis.scripts import load

# Entries of one step, which take Redis about 10 ms.
_MOST = 1_000


@dataclass(frozen=True, slots=True)
class RepairStep:
    """The result of one step.

    Attributes:
        moved: entries that it has moved.
        is_complete: whether the lane needs no further step.
        is_renewed: whether this step has put the lane in order.
    """

    moved: int
    is_complete: bool
    is_renewed: bool


class LaneRepair:
    """Repairs the lanes of one queue. Its method raises `QueueUnavailable` when Redis cannot be used right now."""

    def __init__(self, client: Redis, queue: str, group: str) -> None:
        self._client = client
        self._queue = queue
        self._group = group
        self._script = load(client, "repair_lane")

    async def step(self, lane: Lane) -> RepairStep:
        """Move some entries of a lane, or none if the lane is in order. Call it until the lane needs no further step."""
        number = (Lane.EXPRESS, Lane.MAIN).index(lane)
        keys = Keys.of(self._queue).lanes[number]
        names = [keys.stream, keys.repair]
        for group in await groups_of(self._client, self._queue, self._group):
            of_group = Keys.of(self._queue, group).lanes[number]
            names += [of_group.released, of_group.settled]
        with translated():
            moved, *flags = await self._script(names, [int(FAR_AHEAD * 1000), self._group, _MOST])
        return RepairStep(moved, *map(bool, flags))
