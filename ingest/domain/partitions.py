"""Divides the orders of a queue into partitions. Each is a separate queue with all its keys in one slot of a cluster.

An order ID belongs to partition `CRC-32(ID) modulo n`, with the CRC-32 of zlib, gzip and PNG over the ID's UTF-8. Programs that write into
Redis themselves compute the same. A queue with a single partition keeps its plain name.
"""

from zlib import crc32

import msgspec

# Workers read all partitions, so more of them only cost.
MOST_PARTITIONS = 64


def partition_of(order_id: str, partitions: int) -> int:
    """Return the partition of an order ID, from 0."""
    return crc32(order_id.encode()) % partitions


def partition_queue(queue: str, partition: int, partitions: int) -> str:
    """Return the name of a partition's queue: `orders` if there is only one, otherwise `orders:3` or `orders/shop-de:3`."""
    return f"{queue}:{partition}" if partitions > 1 else queue


class Layout(msgspec.Struct, frozen=True):
    """The partitions of a queue.

    Attributes:
        queue: the name of the whole queue, as `queue_of` returns it.
        partitions: how many partitions producers write to.
        former: earlier numbers of partitions, whose queues may still contain entries and are read as well.
        generation: grows with each change.
    """

    queue: str
    partitions: int = 1
    former: tuple[int, ...] = ()
    generation: int = 0

    def queue_of_order(self, order_id: str) -> str:
        """Return the queue into which an order is enqueued."""
        return partition_queue(self.queue, partition_of(order_id, self.partitions), self.partitions)

    def queues_of_order(self, order_id: str) -> tuple[str, ...]:
        """Return all queues that may contain an order, with the result of `queue_of_order` first."""
        numbers = (self.partitions, *self.former)
        return tuple(dict.fromkeys(partition_queue(self.queue, partition_of(order_id, n), n) for n in numbers))

    @property
    def others(self) -> tuple[str, ...]:
        """All queues outside of the layout that a program with another number of partitions may write to."""
        names = (self.queue, *(partition_queue(self.queue, each, MOST_PARTITIONS) for each in range(MOST_PARTITIONS)))
        return tuple(name for name in names if name not in self.queues)

    @property
    def current(self) -> tuple[str, ...]:
        """The queues that producers write to."""
        return tuple(partition_queue(self.queue, each, self.partitions) for each in range(self.partitions))

    @property
    def queues(self) -> tuple[str, ...]:
        """All queues that workers read and operators see, the current ones first."""
        numbers = (self.partitions, *self.former)
        return tuple(dict.fromkeys(partition_queue(self.queue, each, n) for n in numbers for each in range(n)))
