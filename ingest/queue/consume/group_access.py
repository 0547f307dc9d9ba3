"""Access to one queue's consumer group: connections, scripts, and the group itself, which is created again when it is missing."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

import msgspec
from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.deliveries.result import Finished
from ingest.domain.errors import QueueUnavailable
from ingest.queue.consume.idle_reads import IdleReads
from ingest.queue.layout.entries import pairs, to_delivery
from ingest.queue.layout.keys import Keys, LaneKeys
from ingest.queue.redis.combined_calls import CombinedCalls
from ingest.queue.redis.connection import NoGroup, is_out_of_memory, translated, translating
from ingest.queue.redis.routed_connection import QueueConnection
from ingest.queue.redis.scripts import load
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
Item = TypeVar("Item", bound=EntryRef | Delivery | Finished)
# Entries for one script: few enough that Redis answers others within milliseconds.
MOST_IDS = 200


class SharedCommands(msgspec.Struct):
    """The commands that the consumers of one process share, so that an idle source costs next to nothing. Used while there are several.

    Attributes:
        calls, acks, reads: of scripts, of acks over a connection for nothing else, and of idle consumers.
        consumers: how many consumers there are.
    """

    calls: CombinedCalls
    acks: CombinedCalls
    reads: IdleReads
    consumers: int = 0

    @property
    def are_used(self) -> bool:
        """Whether there are several consumers."""
        return self.consumers > 1

    async def close(self) -> None:
        """End the commands whose replies are outstanding."""
        await self.reads.close()
        await self.calls.close()
        await self.acks.close()


@dataclass
class GroupAccess:
    """The connections, the scripts and the group of one consumer, which its reading, settling, liveness and maintenance share.

    Attributes:
        control: for commands that do not block.
        reading: for reads, which block.
        acking: for acks, so that other commands do not wait behind them.
        keys: the keys of the queue and the group.
        group: the consumer group.
        name: the consumer.
        has_xnack: whether the server has `XNACK`.
        commands: shared by the consumers of the process. None for a consumer on its own.
    """

    control: Redis
    reading: QueueConnection
    acking: QueueConnection
    keys: Keys
    group: str
    name: str
    has_xnack: bool = False
    commands: SharedCommands | None = None

    def __post_init__(self) -> None:
        """Load each script when it is first run."""
        self.lanes = self.keys.lanes
        self.script = cache(partial(load, self.control, has_xnack=self.has_xnack))

    @translating
    async def ensure_group(self) -> bool:
        """Create the stream and the group of each lane if they are missing, and return whether any were."""
        return any([await self._ensure_lane(lane) for lane in self.lanes])

    async def _ensure_lane(self, lane: LaneKeys) -> bool:
        with translated():
            try:
                await self.control.xgroup_create(lane.stream, self.group, id="0", mkstream=True)
            except ResponseError as error:
                # Out of memory, Redis rejects the creation of a group before it checks whether the group exists.
                if "BUSYGROUP" in str(error) or (is_out_of_memory(error) and await self._has_group(lane)):
                    return False
                raise
            # A new group receives all entries again, including those that its namesake had settled. If the process dies here,
            # entries that other groups still keep are deleted when those have finished them, because they were settled once.
            while await self.control.zremrangebyrank(lane.settled, 0, MOST_IDS - 1) == MOST_IDS:
                pass
        return True

    async def _has_group(self, lane: LaneKeys) -> bool:
        if not await self.control.exists(lane.stream):
            return False
        groups = await self.control.xinfo_groups(lane.stream)
        return any(group["name"] == self.group.encode() for group in groups)

    async def restore_group(self) -> None:
        """Create the group again in each lane where it is missing."""
        for lane in self.lanes:
            if await self._ensure_lane(lane):
                _log.warning("group_restored", stream=lane.stream, group=self.group)

    @property
    def shared(self) -> SharedCommands | None:
        """The commands that this consumer shares with others now."""
        return self.commands if self.commands is not None and self.commands.are_used else None

    async def call(self, script: str, keys: Sequence[str], arguments: Sequence[Any] = ()) -> Any:
        """Run a script for this group and consumer. The group is created again if it is missing."""
        return await self._with_group(partial(self.script(script), keys, [self.group, self.name, *arguments]))

    async def call_together(self, script: str, keys: Sequence[str], arguments: Sequence[Any] = ()) -> Any:
        """As `call`, for a regular call, which shares a command with the same calls of other consumers."""
        if (shared := self.shared) is None:
            return await self.call(script, keys, arguments)
        values = [self.group, self.name, *arguments]
        return await self._with_group(partial(shared.calls.call, script, keys, values, has_xnack=self.has_xnack))

    async def _with_group(self, call: Callable[[], Awaitable[Any]]) -> Any:
        for _ in range(2):
            try:
                with translated():
                    return await call()
            except NoGroup:
                await self.restore_group()
        raise QueueUnavailable("the consumer group vanishes as soon as it is created")

    def by_lane(self, items: Iterable[Item]) -> list[tuple[LaneKeys, list[Item]]]:
        """The entries of each lane, or the deliveries of entries, for lanes that have any of them."""
        found = by_stream(items)
        return [(lane, found[lane.stream]) for lane in self.lanes if lane.stream in found]

    def lane_of(self, entry: EntryRef) -> LaneKeys:
        """The lane of an entry."""
        express, main = self.lanes
        return express if entry.stream == express.stream else main


def by_stream(items: Iterable[Item]) -> Mapping[str, list[Item]]:
    """Entries, or deliveries of entries, by the stream of the entry."""
    found: defaultdict[str, list[Item]] = defaultdict(list)
    for item in items:
        entry = item if isinstance(item, EntryRef) else item.entry
        found[entry.stream].append(item)
    return found


def deliveries_of(lane: LaneKeys, entries: Sequence[Any]) -> list[Delivery]:
    """The deliveries that a script has claimed in a lane: for each entry its ID, fields, and number of deliveries."""
    return [to_delivery(lane.stream, entry_id, pairs(fields), int(count)) for entry_id, fields, count in entries]
