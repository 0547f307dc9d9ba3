"""Reports the state of a queue, for /metrics and `ingest status`. Changes nothing."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from redis.asyncio import Redis

from ingest.domain.deliveries.partition_trouble import PartitionTrouble
from ingest.domain.deliveries.queue_state import QueueState, total_of
from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.source_state import merged as merged_reasons
from ingest.queue.operate.partition_monitor import ConsumerState, GroupState, PartitionMonitor
from ingest.queue.operate.partition_troubles import read_troubles
from ingest.queue.operate.queue_parts import QueueParts, ReadLayout
from ingest.queue.operate.queue_states import read_states

_BEST_FIRST = ("alive", "stale", "unknown")


@dataclass(frozen=True, slots=True)
class KnownQueue:
    """A queue, as far as its partitions can be read.

    Attributes:
        total: its state, or None if a partition cannot be read.
        partitions: the state of those that can be read, if there are several.
        consumers: of the partitions that can be read, by name.
        troubles: of partitions.
        last_heartbeat: of any worker process, in Unix seconds, or None if there was none.
    """

    total: QueueState | None
    partitions: Mapping[str, QueueState]
    consumers: list[ConsumerState]
    troubles: Sequence[PartitionTrouble]
    last_heartbeat: float | None = None

    @property
    def problem(self) -> str:
        """Why a partition cannot be read, or empty."""
        unread = (each.text for each in self.troubles if each.queue not in self.partitions)
        return "" if self.total is not None else next(unread, "")


class Monitor:
    """Reads the state of a queue and of one of its groups.

    Its methods raise `QueueUnavailable` when Redis cannot be used right now.
    """

    def __init__(self, client: Redis, layout: ReadLayout, group: str) -> None:
        self._client = client
        self._group = group
        self._parts = QueueParts(layout, lambda queue, _: PartitionMonitor(client, queue, group))

    async def state(self) -> QueueState:
        """The state of the whole queue."""
        return total_of((await self.partitions()).values())

    async def partitions(self) -> Mapping[str, QueueState]:
        """The state of each partition, by the name of its queue."""
        found = {}
        for queue, state in (await self.known_partitions()).items():
            if isinstance(state, QueueUnavailable):
                raise state
            found[queue] = state
        return found

    async def known_partitions(self) -> Mapping[str, QueueState | QueueUnavailable]:
        """As `partitions`, with the error for a partition whose server cannot be used, or that Redis rejects."""
        queues = [*await self._parts.oldest_first()]
        return dict(zip(queues, await read_states(self._client, queues, self._group), strict=True))

    async def consumers(self) -> list[ConsumerState]:
        """Every consumer with a heartbeat or in the group of any partition, by name."""
        parts = await self._parts.oldest_first()
        if len(parts) == 1:
            [part] = parts.values()
            return await part.consumers()
        return merged(await asyncio.gather(*(part.consumers() for part in parts.values())))

    async def known(self) -> KnownQueue:
        """The state of the queue and its consumers, as far as its partitions can be read."""
        states = await self.known_partitions()
        known = {queue: state for queue, state in states.items() if isinstance(state, QueueState)}
        if not known:
            raise next(state for state in states.values() if isinstance(state, QueueUnavailable))
        parts = await self._parts.oldest_first()
        groups, troubles = await asyncio.gather(
            asyncio.gather(*(parts[queue].members() for queue in known if queue in parts), return_exceptions=True),
            read_troubles(self._client, self._group, states),
        )
        found = [each for each in groups if isinstance(each, GroupState)]
        for each in groups:
            if isinstance(each, BaseException) and (not found or not isinstance(each, QueueUnavailable)):
                raise each
        return KnownQueue(
            total_of(known.values()) if len(known) == len(states) else None,
            known if len(states) > 1 else {},
            merged(each.consumers for each in found),
            troubles,
            max((each.last_heartbeat for each in found if each.last_heartbeat is not None), default=None),
        )


def merged(partitions: Iterable[Iterable[ConsumerState]]) -> list[ConsumerState]:
    """Add up the consumers of several partitions by name. A process reads all partitions under one name."""
    found: dict[str, list[ConsumerState]] = {}
    for consumers in partitions:
        for consumer in consumers:
            found.setdefault(consumer.name, []).append(consumer)
    return [_merged(each) for _, each in sorted(found.items())]


def _merged(states: list[ConsumerState]) -> ConsumerState:
    # A process that has left a former partition is alive by its heartbeat in another one.
    best = min(states, key=lambda part: (_BEST_FIRST.index(part.state), part.stale_for or 0.0))
    return replace(
        best,
        pending=sum(part.pending for part in states),
        idle=min((part.idle for part in states if part.idle is not None), default=None),
        reasons=merged_reasons(reason for part in states for reason in part.reasons),
    )
