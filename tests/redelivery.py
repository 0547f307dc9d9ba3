"""Shared functions for redeliveries: release entries by their IDs, and claim by a single cause."""

from collections.abc import Iterable

from consumers import Consumer
from redis.asyncio import Redis

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.queue.layout.keys import Keys

MOST = 100_000


def refs(keys: Keys, entry_ids: Iterable[str]) -> list[EntryRef]:
    """Those entries of the main lane."""
    return [EntryRef(keys.stream, entry_id) for entry_id in entry_ids]


def delivered(keys: Keys, entry_ids: Iterable[str], order_id: str | None = None) -> list[Delivery]:
    """Deliveries of these entries of the main lane, as their holder has them, including the orders for moves."""
    return [
        Delivery(entry, order_id or entry.id, 1.0, 1, 1, None, {b"order_id": (order_id or entry.id).encode()})
        for entry in refs(keys, entry_ids)
    ]


async def as_read(redis: Redis, keys: Keys, entry_ids: Iterable[str]) -> list[Delivery]:
    """The same with the orders in the entries, or an unknown order for a deleted entry."""
    deliveries = []
    for delivery in delivered(keys, entry_ids):
        found = await redis.xrange(keys.stream, delivery.entry.id, delivery.entry.id)
        name = found[0][1][b"order_id"].decode() if found else None
        deliveries += delivered(keys, [delivery.entry.id], name)
    return deliveries


async def sweep(consumer: Consumer, idle: float) -> int:
    """One complete sweep. Returns the number of entries that were put back into the pending list."""
    restored = 0
    while True:
        found = await consumer.sweep(idle)
        restored += found.restored
        if found.is_complete:
            return restored


async def claim_idle(consumer: Consumer, count: int, idle: float) -> list[Delivery]:
    """The entries that a consumer can claim after a sweep, except for entries of dead consumers."""
    await sweep(consumer, idle)
    return (await consumer.claim_abandoned(count)).released


async def claim_dead(consumer: Consumer, count: int) -> list[Delivery]:
    """The entries that a consumer can claim from dead consumers."""
    return (await consumer.claim_abandoned(count)).dead
