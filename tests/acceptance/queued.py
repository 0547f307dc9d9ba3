"""The queue of one test, as commands leave it."""

from collections.abc import Iterator

import pytest
from dead_letter_entries import dead_fields
from redis import Redis

from ingest.queue.layout.keys import Keys


class Queued:
    """Calling it returns the orders in the main lane."""

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self.redis = redis
        self.keys = keys

    def __call__(self) -> list[str]:
        return [fields[b"order_id"].decode() for _, fields in self.redis.xrange(self.keys.stream)]

    def pending(self) -> int:
        """The number of pending entries, or 0 without a group."""
        return sum(group["pending"] for group in self.redis.xinfo_groups(self.keys.stream))  # type: ignore[union-attr]

    def dead_letter(self, order_id: str) -> None:
        """Add a dead letter."""
        self.redis.xadd(self.keys.dead, dead_fields(order_id))


@pytest.fixture
def queued(redis_url: str, queue_name: str) -> Iterator[Queued]:
    with Redis.from_url(redis_url) as redis:
        yield Queued(redis, Keys.of(queue_name))
