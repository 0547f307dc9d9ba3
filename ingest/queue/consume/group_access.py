"""Access to one queue's consumer group: connections, scripts, and the group itself, which is created again when it is missing."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, TypeVar

from redis.asyncio import Redis
from redis.exceptions import ResponseError

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.deliveries.result import Finished
from ingest.domain.errors import QueueUnavailable
from ingest.queue.consume.waiting_reads import WaitingRead
from ingest.queue.layout.entries import pairs, to_delivery
from ingest.queue.layout.keys import Keys, LaneKeys
from ingest.queue.redis.combined_calls import CombinedCalls
from ingest.queue.redis.connection import NoGroup, is_out_of_memory, translated, translating
from ingest.queue.redis.scripts import load
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
Item = TypeVar("Item", bound=EntryRef | Delivery | Finished)
# Entries for one script: few enough that Redis answers others within milliseconds.
MOST_IDS = 200


@dataclass
class GroupAccess:
    """The connections, the scripts and the group of one consumer, which its reading, settling, liveness and maintenance share.

    Attributes:
        control: for commands that do not block.
        calls: regular calls, which share commands with the same calls of other consumers of the process.
        acks: in the same way, over a connection for nothing else, so that other commands do not wait behind them.
        waiting: reads, which block.
        keys: the keys of the queue and the group.
        group: the consumer group.
        name: the consumer.
        has_xnack: whether the server has `XNACK`.
    """

    control: Redis
    calls: CombinedCalls
    acks: CombinedCalls
    waiting: WaitingRead
    keys: Keys
    group: str
    name: str
    has_xnack: bool = False

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

    async def call(self, script: str, keys: Sequence[str], arguments: Sequence[Any] = ()) -> Any:
        """Run a script for this group and consumer."""
        return await self.with_group(self.script(script), keys, [self.group, self.name, *arguments])

    async def call_together(
        self, script: str, keys: Sequence[str], arguments: Sequence[Any] = (), *, over: CombinedCalls | None = None
    ) -> Any:
        """As `call`, in a command with the same calls of other consumers, by default `over` the regular calls."""
        run = partial((over or self.calls).call, has_xnack=self.has_xnack)
        return await self.with_group(run, script, keys, [self.group, self.name, *arguments])

    async def with_group(self, call: Callable[..., Awaitable[Any]], *arguments: Any) -> Any:
        """Make a call, and once more if the group is missing, which is created again."""
        for _ in range(2):
            try:
                with translated():
                    return await call(*arguments)
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
