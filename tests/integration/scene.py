"""One test's scene: its queue, its database, an external API, and workers assembled from the real parts."""

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import databases
import msgspec
from consumers import Consumer
from opened_worker import opened_worker
from prometheus_client import CollectorRegistry
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from shipped import as_account, as_admin, as_api
from support import connected, eventually

from ingest.domain.deliveries.queue_state import QueueState
from ingest.flow.clock import SharedClock
from ingest.flow.read.reader import BLOCK
from ingest.flow.shutdown import Shutdown
from ingest.lab.servers import EmbeddedServers
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.operations.backends import Backends
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.partition_monitor import PartitionMonitor
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import control_client
from ingest.services.worker_parts import Classes
from ingest.settings import Settings, load_settings
from ingest.telemetry.collectors import SharedMetricsCollector
from ingest.telemetry.metrics import WORKER_METRICS, WorkerMetrics, worker_shared_metrics

GROUP = "ingest"
# The metrics whose series are exported after their first count or observation.
APPEAR_LATER = {spec.name for spec in WORKER_METRICS.values() if spec.appears_later}


def document(order_id: str, *, status: str = "placed", updated_at: str | None = None, price: str = "2.50") -> bytes:
    """An order as the external API describes it."""
    return msgspec.json.encode(
        {
            "id": order_id,
            "status": status,
            "placed_at": "2026-01-02T03:04:05Z",
            "updated_at": updated_at,
            "currency": "EUR",
            "customer_id": None,
            "country": "Norway",
            "lines": [{"sku": "S", "description": None, "quantity": 3, "unit_price": price}],
        }
    )


# The mapping of the fields that such orders share with most shops, without its first line.
PLAIN_MAPPING = """
[order]
id = "id"
status = "status"
placed_at = "placed_at"
currency = "currency"
[[lines]]
from = "lines"
sku = "sku"
quantity = "quantity"
unit_price = "unit_price"
"""


@dataclass(frozen=True, slots=True)
class Pending:
    """One entry of the group's pending list."""

    entry_id: str
    consumer: str
    idle: float
    deliveries: int


@dataclass(slots=True)
class RunningWorker:
    """A worker that runs in this event loop."""

    task: asyncio.Task[None]
    shutdown: Shutdown
    registry: CollectorRegistry

    def metric(self, name: str, **labels: str) -> float:
        """A sample as /metrics would show it, or 0 for one that is exported later."""
        value = self.registry.get_sample_value(name, {"source": "", **labels})
        if value is None:
            value = self.registry.get_sample_value(name, labels)
        if value is None and name.removesuffix("_count") in APPEAR_LATER:
            return 0.0
        assert value is not None, f"no sample {name} {labels}"
        return value

    async def stop(self, *, hurry: bool = False) -> None:
        """Ask it to stop, and wait until it has."""
        self.shutdown.request("test")
        if hurry:
            self.shutdown.overdue.set()
        async with asyncio.timeout(30):
            await self.task

    async def die(self) -> None:
        """Drop everything immediately, without settling, releasing or sending commands to Redis."""
        self.task.cancel()
        await asyncio.wait([self.task], timeout=10)
        assert self.task.done(), "a cancelled worker goes on"


class Scene:
    """What stands around the workers of one test, and what can be seen of their work from outside."""

    def __init__(self, redis: Redis, redis_url: str, dsn: str, queue: str, api: SimulatedApi) -> None:
        self.redis = redis
        self.redis_url = redis_url
        self.dsn = dsn
        self.queue = queue
        self.api = api
        self.keys = Keys.of(queue)

    @classmethod
    @asynccontextmanager
    async def open(
        cls, redis_url: str, dsn: str, queue: str, behaviour: Behaviour | None = None
    ) -> AsyncIterator["Scene"]:
        """The scene, with its own external API."""
        behaviour = behaviour or Behaviour(any_id=True)
        async with SimulatedApi(behaviour, seed=1) as api, control_client(as_admin(redis_url)) as redis:
            yield cls(redis, redis_url, dsn, queue, api)

    @classmethod
    @asynccontextmanager
    async def open_fragile(cls, servers: EmbeddedServers, queue: str) -> AsyncIterator["Scene"]:
        """The scene on servers that the test may stop or kill, in a new database. The servers run again afterwards."""
        dsn = await databases.create(servers.postgres_dsn, f"own_{secrets.token_hex(6)}")
        async with cls.open(as_account(servers.redis_url, "ingest"), dsn, queue) as scene:
            yield scene
            for server in (servers.valkey, servers.postgres):
                if not server.is_running():
                    server.start()

    # -- workers --------------------------------------------------------------------------------------------

    def settings(self, **changed: Any) -> Settings:
        """Settings for a worker here, with quick tries, so that tests only wait for a backoff that they test."""
        return load_settings(
            **{
                "redis_url": self.redis_url,
                "postgres_dsn": self.dsn,
                "upstream_url": self.api.url_template,
                "stream": self.queue,
                "group": GROUP,
                "upstream_tries": 1,
                "concurrency": 20,
                "heartbeat_ttl": 1.0,
                **changed,
            }
        )

    def api_backends(self, **changed: Any) -> Backends:
        """The servers with the accounts of the HTTP API, which operators use to erase orders."""
        accounts = {"redis_url": as_api(self.redis_url), "postgres_dsn": as_api(self.dsn)}
        return Backends.of(self.settings(**accounts, **changed))

    @asynccontextmanager
    async def worker(
        self, name: str = "w", classes: Classes | None = None, clock: SharedClock | None = None, **changed: Any
    ) -> AsyncIterator[RunningWorker]:
        """A running worker, which drops everything at the end of the block, unless it has ended before."""
        settings = self.settings(**changed)
        shared_metrics = worker_shared_metrics(1)
        registry = CollectorRegistry()
        registry.register(SharedMetricsCollector(shared_metrics))
        shutdown = Shutdown(settings.shutdown_grace)
        metrics = WorkerMetrics.on(shared_metrics, 0)
        async with opened_worker(settings, metrics, name, classes, clock) as worker:
            running = RunningWorker(asyncio.create_task(worker.run(shutdown)), shutdown, registry)
            try:
                yield running
            finally:
                await running.die()
                if not running.task.cancelled():
                    running.task.result()  # a worker that failed fails its test

    @asynccontextmanager
    async def consumer(self, name: str) -> AsyncIterator[Consumer]:
        """A consumer without a worker around it."""
        async with Consumer.open(self.redis_url, self.queue, GROUP, name, BLOCK) as consumer:
            await consumer.ensure_group()
            yield consumer

    # -- the queue ------------------------------------------------------------------------------------------

    async def enqueue(self, *order_ids: str) -> None:
        """Announce orders as producers do."""
        await Producer(self.redis, self.queue).enqueue(order_ids)

    async def enqueue_in_both_lanes(self, *order_ids: str) -> None:
        """Announce every other order as urgent."""
        producer = Producer(self.redis, self.queue)
        await producer.enqueue(order_ids[::2])
        await producer.enqueue(order_ids[1::2], express=True)

    async def add(self, **fields: str | bytes) -> str:
        """Add an entry like a foreign producer, and return its ID."""
        entry_id: bytes = await self.redis.xadd(self.keys.stream, dict(fields))  # type: ignore[arg-type]
        return entry_id.decode()

    async def state(self) -> QueueState:
        """The queue as the product's own monitor sees it."""
        return await PartitionMonitor(self.redis, self.queue, GROUP).state()

    async def pending(self) -> list[Pending]:
        """All delivered and unfinished entries."""
        return [
            Pending(
                row["message_id"].decode(),
                row["consumer"].decode(),
                row["time_since_delivered"] / 1000,
                row["times_delivered"],
            )
            for lane in self.keys.lanes
            for row in await self.redis.xpending_range(lane.stream, GROUP, "-", "+", 10_000)
        ]

    async def pending_count(self) -> int:
        """How many entries are handed out, as XPENDING sums it up."""
        return sum([int((await self.redis.xpending(lane.stream, GROUP))["pending"]) for lane in self.keys.lanes])

    async def dead(self) -> list[dict[str, str]]:
        """The dead letters, oldest first."""
        entries = await self.redis.xrange(self.keys.dead)
        return [{name.decode(): value.decode() for name, value in fields.items()} for _, fields in entries]

    async def is_finished(self) -> bool:
        """Whether nothing is left to do: no entry in either lane, none that waits for a retry."""
        try:
            async with self.redis.pipeline() as pipe:
                pipe.zcard(self.keys.retry)
                for lane in self.keys.lanes:
                    pipe.xlen(lane.stream)
                return not any(await pipe.execute())
        except RedisConnectionError:
            return False  # a test that kills Redis retries

    async def finished(self, within: float = 60.0) -> None:
        """Wait until nothing is left to do."""
        await eventually(self.is_finished, within=within)

    # -- the database ---------------------------------------------------------------------------------------

    async def sql(self, query: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run one statement on a new connection, so that the server may have been restarted before."""
        async with connected(self.dsn) as connection:
            return list(await connection.fetch(query, *arguments))

    async def rows(self) -> dict[str, asyncpg.Record]:
        """All stored orders by ID."""
        return {row["order_id"]: row for row in await self.sql("SELECT * FROM orders")}

    async def stored(self) -> int:
        """How many orders are stored."""
        return int((await self.sql("SELECT count(*) FROM orders"))[0][0])

    async def stored_at_least(self, count: int, within: float = 60.0) -> int:
        """Wait until so many orders are stored."""

        # One connection for all looks: opening it costs more than many of them.
        async with connected(self.dsn) as connection:

            async def enough() -> int | None:
                stored = int(await connection.fetchval("SELECT count(*) FROM orders"))
                return stored if stored >= count else None

            found = await eventually(enough, within=within)
        assert found is not None
        return found


def ids(count: int, prefix: str = "order") -> list[str]:
    """Distinct order IDs."""
    return [f"{prefix}-{number}" for number in range(count)]


def unguarded(rows: Mapping[str, asyncpg.Record]) -> dict[str, dict[str, Any]]:
    """The rows without the columns that a later fetch of the same content changes."""
    return {
        order_id: {name: value for name, value in row.items() if name not in {"version", "fetched_at"}}
        for order_id, row in rows.items()
    }


def assert_right(rows: Mapping[str, asyncpg.Record], order_ids: Sequence[str]) -> None:
    """Exactly these orders are stored, and each row agrees with its own document."""
    assert sorted(rows) == sorted(order_ids)
    for row in rows.values():
        lines = json.loads(row["lines"])
        assert row["line_count"] == len(lines) > 0
        assert row["currency"]
        assert row["ingested_at"] >= row["enqueued_at"]
