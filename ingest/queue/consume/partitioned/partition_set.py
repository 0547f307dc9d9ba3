"""The partitions that one process reads, which change while it runs.

Only this process uses the set. If the process dies, nothing of it is lost, because its successor reads the same record of partitions.
"""

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ingest.queue.consume.consumer import Consumer

_T = TypeVar("_T")


@dataclass(slots=True, eq=False)
class Partition:
    """One partition.

    Attributes:
        consumer: of the partition.
        has_backlog: whether its last read returned as many entries as requested, so that it may have more.
        leads: whether this process does the maintenance of the partition, according to its last heartbeat.
    """

    consumer: Consumer
    has_backlog: bool = False
    leads: bool = False


class PartitionSet:
    """The partitions of one queue.

    Attributes:
        consumers: how many processes read them.
        generation: of the layout with these partitions.
        changed: set when a heartbeat in the only partition reports a later generation.
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

    @property
    def all(self) -> tuple[Partition, ...]:
        """The partitions that are read, partition 0 first."""
        return self._read

    @property
    def only(self) -> Consumer | None:
        """The consumer of the only partition, or None if there are several."""
        return self._read[0].consumer if len(self._read) == 1 else None

    def rotated(self) -> tuple[Partition, ...]:
        """Return the partitions, beginning with a random one, so that none is always the last."""
        first = random.randrange(len(self._read))  # noqa: S311  no secret
        return self._read[first:] + self._read[:first]

    def replace(self, partitions: Sequence[Partition], generation: int) -> None:
        """Read the partitions of a layout from now on. Entries of the others are still settled."""
        self._read, self.generation = tuple(partitions), generation
        streams = {stream: each for each in partitions for stream in each.consumer.reading.streams}
        self._by_stream |= streams
        self.have_one_owner = self._have_one_owner(streams)

    def of(self, stream: str) -> Consumer:
        """Return the consumer of the partition to which a stream belongs."""
        return self._by_stream[stream].consumer

    def divided(self, items: Iterable[_T], stream_of: Callable[[_T], str]) -> list[tuple[Consumer, list[_T]]]:
        """Divide items by the partitions to which their streams belong."""
        found: dict[Partition, list[_T]] = {}
        for item in items:
            found.setdefault(self._by_stream[stream_of(item)], []).append(item)
        return [(partition.consumer, own) for partition, own in found.items()]
