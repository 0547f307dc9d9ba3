"""A named consumer of one queue's group: its connections, its scripts, and the group, which is created again where it is missing."""

from collections.abc import Iterator, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import ResponseError

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.errors import QueueUnavailable
from ingest.queue.layout.entries import pairs, to_delivery
from ingest.queue.layout.keys import Keys, Lane
from ingest.queue.redis.capabilities import Capabilities
from ingest.queue.redis.connection import NoGroup, all_translated, is_out_of_memory, translated
from ingest.queue.redis.direct_connection import DirectConnection
from ingest.queue.redis.scripts import Scripts
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
# Entries for one script: few enough that Redis answers others within milliseconds.
MOST_IDS = 200


@all_translated
class Member:
    """What all that a consumer does is based on.

    Args:
        control: for commands that answer at once.
        reading: for reads, which block.
        acking: for acks, which others should not wait behind.
        keys: of the queue and the group.
        group: the consumer group.
        name: the consumer.
        capabilities: what the server can do beyond Redis 7.0.
        results_age: seconds for which results are kept; 0: they are not kept.

    Attributes:
        keeps_results: whether they are.
    """

    def __init__(
        self,
        control: Redis,
        reading: DirectConnection,
        acking: DirectConnection,
        keys: Keys,
        group: str,
        name: str,
        *,
        capabilities: Capabilities = Capabilities(),  # noqa: B008  immutable
        results_age: float = 0.0,
    ) -> None:
        self._scripts = Scripts.on(control, capabilities)
        self._control = control
        self._reading = reading
        self._acking = acking
        self._keys = keys
        self._lanes = keys.lanes
        self._group = group
        self._claims_as_it_reads = capabilities.claims_as_it_reads
        self._results_age = int(results_age * 1000)
        self.keeps_results = results_age > 0
        self.name = name

    async def ensure_group(self) -> bool:
        """Create each lane's stream and group where they are missing; return whether any were."""
        return any([await self._ensure_lane(lane) for lane in self._lanes])

    async def _ensure_lane(self, lane: Lane) -> bool:
        with translated():
            try:
                await self._control.xgroup_create(lane.stream, self._group, id="0", mkstream=True)
            except ResponseError as error:
                # Out of memory, Redis refuses to create a group before it looks whether there is one.
                if "BUSYGROUP" in str(error) or (is_out_of_memory(error) and await self._has_group(lane)):
                    return False
                raise
            # A new group sees everything again; what its namesake had settled is not settled for it. If the process dies here,
            # entries that other groups still keep are deleted when they have finished them: they were settled once.
            while await self._control.zremrangebyrank(lane.settled, 0, MOST_IDS - 1) == MOST_IDS:
                pass
        return True

    async def _has_group(self, lane: Lane) -> bool:
        if not await self._control.exists(lane.stream):
            return False
        groups = await self._control.xinfo_groups(lane.stream)
        return any(group["name"] == self._group.encode() for group in groups)

    async def _restore_group(self) -> None:
        for lane in self._lanes:
            if await self._ensure_lane(lane):
                _log.warning("group_restored", stream=lane.stream, group=self._group)

    async def _call_group(self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[Any]) -> Any:
        """Run a script that needs the group; one that is missing is created again."""
        for _ in range(2):
            try:
                with translated():
                    return await script(keys, arguments)
            except NoGroup:
                await self._restore_group()
        raise QueueUnavailable("the consumer group vanishes as soon as it is created")

    def _by_lane(self, entries: Sequence[EntryRef]) -> Iterator[tuple[Lane, list[str]]]:
        """The IDs of entries of each lane, for lanes that have any of them."""
        for lane in self._lanes:
            if ids := [entry.id for entry in entries if entry.stream == lane.stream]:
                yield lane, ids

    def _lane_of(self, entry: EntryRef) -> Lane:
        express, main = self._lanes
        return express if entry.stream == express.stream else main


def deliveries_of(lane: Lane, entries: Sequence[Any]) -> list[Delivery]:
    """What a script has claimed of a lane: for each entry its ID, fields, and deliveries so far."""
    return [to_delivery(lane.stream, entry_id, pairs(fields), int(count)) for entry_id, fields, count in entries]
