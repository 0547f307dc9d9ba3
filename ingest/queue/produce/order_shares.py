"""Divides the orders of a call by partition, each of which accepts its orders in separate steps."""

from collections.abc import Sequence

import msgspec

from ingest.domain.deliveries.announcement import Announcement
from ingest.domain.partitions import Layout, partition_of, partition_queue
from ingest.queue.produce.submission import OVERHEAD, Submission, digest_of

Listed = Sequence[str | Announcement]
# It cannot be printed, so no caller's key is the key of another's share.
_SEPARATOR = "\x1f"


class Share(msgspec.Struct, frozen=True):
    """The orders of one call that belong to one partition.

    Attributes:
        queue: The queue of the partition.
        orders: The orders, in the order of the call.
        key: The idempotency key of this share.
    """

    queue: str
    orders: Listed
    key: str | None


def shares_of(layout: Layout, orders: Listed, key: str | None) -> list[Share]:
    """Divide the orders of a call.

    With several partitions, the key of a share contains their number, because another number divides the orders differently.
    """
    if layout.partitions == 1:
        return [Share(layout.queue, orders, key)]
    by_partition: dict[int, list[str | Announcement]] = {}
    for order in orders:
        order_id = order if isinstance(order, str) else order.order_id
        by_partition.setdefault(partition_of(order_id, layout.partitions), []).append(order)
    return [
        Share(
            partition_queue(layout.queue, partition, layout.partitions),
            mine,
            key and f"{key}{_SEPARATOR}{partition}/{layout.partitions}",
        )
        for partition, mine in by_partition.items()
    ]


def claim_of(layout: Layout, orders: Listed, key: str) -> tuple[str, Submission]:
    """Return the record of a whole call under its key, without orders, and the queue that keeps it.

    It is written before the orders of several partitions, so that a key that belongs to other orders is rejected before any is accepted.
    """
    record = Submission((), OVERHEAD, f"{key}{_SEPARATOR}/{layout.partitions}", digest_of(orders))
    return layout.queue_of_order(key), record


def moved_key(key: str | None) -> str | None:
    """Return the key of orders whose partition was closed while they were sent, which no other call has."""
    return key and f"{key}{_SEPARATOR}moved"
