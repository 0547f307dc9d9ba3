"""The partitions that one process reads, which change while it runs.

Only this process uses the set. If the process dies, nothing of it is lost, because its successor reads the same record of partitions.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ingest.domain.errors import QueueUnavailable, UserError
from ingest.queue.consume.consumer import Consumer
from ingest.queue.redis.connection import QueueFull
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class Partition:
    """One partition.

    Attributes:
        queue: its name.
        consumer: of the partition.
        is_down: whether its node is unavailable.
        has_backlog: whether its last read returned as many entries as requested, so that it may have more.
        leads: whether this process does the maintenance of the partition, according to its last heartbeat.
    """

    queue: str
    consumer: Consumer
    is_down: bool = False
    has_backlog: bool = False
    leads: bool = False


class PartitionSet:
    """The partitions of one queue.

    Attributes:
        consumers: how many processes read them.
        generation: of the layout with these partitions.
        changed: set when a heartbeat in the only partition reports another generation.
        any_down: set while the nodes of some partitions are unavailable.
        has_returned: whether a partition is available again, and entries of lost replies may be pending there.
        has_been_silent: whether a partition is available again, and others may have claimed entries there.
        have_one_owner: whether one command may name the streams of all partitions.

    Args:
        have_one_owner: whether one command may name several keys.
    """

    def __init__(self, have_one_owner: Callable[[Iterable[str]], bool]) -> None:
        self._have_one_owner = have_one_owner
        self.have_one_owner = True
        self._read: tuple[Partition, ...] = ()
        self._by_stream: dict[str, Partition] = {}
        self.consumers = 1
        self.generation = 0
        self.changed = asyncio.Event()
        self.any_down = asyncio.Event()
        self.has_returned = self.has_been_silent = False

    @property
    def all(self) -> tuple[Partition, ...]:
        """The partitions that are read, partition 0 first."""
        return self._read

    @property
    def only(self) -> Consumer | None:
        """The consumer of the only partition, or None if there are several."""
        return self._read[0].consumer if len(self._read) == 1 else None

    @property
    def available(self) -> tuple[Partition, ...]:
        """The partitions whose nodes are available. If none is, all, because the whole queue waits then."""
        return tuple(partition for partition in self._read if not partition.is_down) or self._read

    def rotated(self) -> tuple[Partition, ...]:
        """Return the available partitions, beginning with a random one, so that none is always the last."""
        available = self.available
        first = random.randrange(len(available))  # noqa: S311  no secret
        return available[first:] + available[:first]

    async def attempt(self, partition: Partition, call: Callable[..., Awaitable[_T]], *arguments: Any) -> _T:
        """Return the result of a call, which fails if the partition is unavailable. Later calls leave the partition out."""
        try:
            return await call(*arguments)
        except QueueUnavailable as error:
            # A server that is full, or denies access, responds. One server has all partitions or none.
            if not isinstance(error, QueueFull | UserError) and not self.have_one_owner and not partition.is_down:
                partition.is_down = True
                self.any_down.set()
                _log.warning("partition_unavailable", queue=partition.queue, error=str(error))
            raise

    def restore(self, partition: Partition) -> None:
        """Use a partition again, whose node is available."""
        partition.is_down = False
        self.has_returned = self.has_been_silent = True
        self._note_down()
        _log.info("partition_available", queue=partition.queue)

    def replace(self, partitions: Sequence[Partition], generation: int) -> None:
        """Read the partitions of a layout from now on. Entries of the others are still settled."""
        self._read, self.generation = tuple(partitions), generation
        streams = {stream: each for each in partitions for stream in each.consumer.reading.streams}
        self._by_stream |= streams
        self.have_one_owner = self._have_one_owner(streams)
        self._note_down()

    def of(self, stream: str) -> Consumer:
        """Return the consumer of the partition to which a stream belongs."""
        return self._by_stream[stream].consumer

    def divided(self, items: Iterable[_T], stream_of: Callable[[_T], str]) -> list[tuple[Consumer, list[_T]]]:
        """Divide items by the partitions to which their streams belong.

        Items of partitions that are unavailable while others are available are left out.
        """
        found: dict[Partition, list[_T]] = {}
        for item in items:
            found.setdefault(self._by_stream[stream_of(item)], []).append(item)
        left_out = {*self._read} - {*self.available}
        return [(partition.consumer, own) for partition, own in found.items() if partition not in left_out]

    def _note_down(self) -> None:
        if any(partition.is_down for partition in self._read):
            self.any_down.set()
        else:
            self.any_down.clear()
