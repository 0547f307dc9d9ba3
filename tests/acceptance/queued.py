"""The queue of one test, as commands leave it, and the queues of several sources."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from dead_letter_entries import dead_fields
from redis import Redis
from shipped import as_admin
from support import Cli

from ingest.queue.layout.keys import Keys

_FILL = "for i = 1, ARGV[1] do redis.call('XADD', KEYS[1], '*', 'order_id', 'L' .. i) end"


def fill(redis: Redis, stream: str, count: int) -> None:
    """Add entries of the orders L1, L2, … to a lane."""
    redis.eval(_FILL, 1, stream, str(count))


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
    with Redis.from_url(as_admin(redis_url)) as redis:
        yield Queued(redis, Keys.of(queue_name))


class Sources:
    """The queues of the sources `shop-de` and `shop-fr`, and commands configured with them."""

    def __init__(self, redis: Redis, queue: str, cli: Cli) -> None:
        self.redis = redis
        self.run = cli.run
        self.keys = {name: Keys.of(f"{queue}/{name}") for name in ("shop-de", "shop-fr")}

    def dead_letter(self, source: str, order_id: str, reason: str = "not_found", **fields: object) -> str:
        """Add a dead letter. Returns its ID."""
        return self.redis.xadd(self.keys[source].dead, dead_fields(order_id, reason, **fields)).decode()  # type: ignore[union-attr]

    def let_wait(self, source: str, order_id: str, due: int = 4_000_000_000_000) -> None:
        """Add a retry, due at this time in ms."""
        fields = ["order_id", order_id, "attempt", "3", "retry_reason", "timeout", "retry_error", "no answer"]
        self.redis.hset(self.keys[source].retry_entries, f"1-{order_id}", msgspec.msgpack.encode(fields))  # type: ignore[arg-type]
        self.redis.zadd(self.keys[source].retry, {f"1-{order_id}": due})

    def dead(self, source: str) -> list[str]:
        """The orders of a source's dead letters."""
        return self._orders(self.keys[source].dead)

    def queued(self, source: str) -> list[str]:
        """The orders in a source's lanes."""
        return [order for lane in self.keys[source].lanes for order in self._orders(lane.stream)]

    def _orders(self, key: str) -> list[str]:
        return [fields[b"order_id"].decode() for _, fields in self.redis.xrange(key)]


@pytest.fixture
def sources(redis_url: str, queue_name: str, cli: Cli, tmp_path: Path) -> Iterator[Sources]:
    file = tmp_path / "sources.toml"
    shops = (
        f'[sources.{name}.upstream]\nurl = "http://127.0.0.1:1/{name}/{{order_id}}"\n'
        for name in ("shop-de", "shop-fr")
    )
    file.write_text("\n".join(shops))
    cli.env["INGEST_SOURCES"] = str(file)
    with Redis.from_url(as_admin(redis_url)) as redis:
        yield Sources(redis, queue_name, cli)
