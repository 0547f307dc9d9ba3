"""Repairs the lanes of a queue whose entry IDs are too far ahead, while workers and producers run.

A program that may enqueue can choose the ID of an entry. After the largest ID, Redis rejects every further entry of that stream. See
`repair_lane.lua` for the steps. If the process dies between two of them, the next repair continues.
"""

from collections.abc import AsyncIterator
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
    """The result of a step: how many entries it moved."""

    queue: str
    lane: Lane
    moved: int


class LaneRepair:
    """Repairs the lanes of one queue. Its method raises `QueueUnavailable` when Redis cannot be used right now."""

    def __init__(self, client: Redis, queue: str, group: str) -> None:
        self._client = client
        self._queue = queue
        self._group = group
        self._script = load(client, "repair_lane")

    async def steps(self) -> AsyncIterator[RepairStep]:
        """Repair both lanes, step by step. Lanes that need no repair take no step."""
        of_groups = [Keys.of(self._queue, group) for group in await groups_of(self._client, self._queue, self._group)]
        for lane, number in ((Lane.EXPRESS, 0), (Lane.MAIN, 1)):
            keys = Keys.of(self._queue).lanes[number]
            about = [key for each in of_groups for key in (each.lanes[number].released, each.lanes[number].settled)]
            is_complete = False
            while not is_complete:
                with translated():
                    moved, is_complete = await self._script(
                        [keys.stream, keys.repair, *about], [int(FAR_AHEAD * 1000), self._group, _MOST]
                    )
                yield RepairStep(self._queue, lane, moved)
