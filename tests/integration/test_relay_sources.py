"""A relay of several sources on real servers: each row goes into the queue of its source, and no source holds up another."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import asyncpg
import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs
from support import becomes, connected, eventually

from ingest.domain.source_name import queue_of
from ingest.operations.relay.relay import Relay
from ingest.operations.relay.rows import RowEnqueuer
from ingest.operations.relay.source_queues import SourceQueues
from ingest.queue.layout.keys import Keys
from ingest.queue.produce.producer import Producer
from ingest.store.outbox.outbox import Outbox
from ingest.store.outbox.outbox_schema import create_outbox
from ingest.telemetry.relay_metrics import RELAY_METRICS, ROWS, RelayMetrics
from ingest.telemetry.shared_metrics import SharedMetrics

TABLE = "order_outbox"


class Shops:
    """A program with an outbox for several shops."""

    def __init__(self, dsn: str, redis_url: str, queue: str, redis: "Redis", sql: asyncpg.Connection) -> None:
        self.dsn, self.redis_url, self.queue, self.redis, self.sql = dsn, redis_url, queue, redis, sql

    async def add(self, source: str, *order_ids: str) -> None:
        rows = [(source, order_id) for order_id in order_ids]
        await self.sql.executemany("INSERT INTO order_outbox (source, order_id) VALUES ($1, $2)", rows)

    async def queued(self, source: str) -> list[str]:
        entries = await self.redis.xrange(Keys.of(queue_of(self.queue, source)).stream)
        return [fields[b"order_id"].decode() for _, fields in entries]

    async def waiting(self) -> list[str]:
        return [row["order_id"] for row in await self.sql.fetch("SELECT order_id FROM order_outbox ORDER BY id")]

    @asynccontextmanager
    async def relaying(self, *sources: str, backlog_limit: int = 0, batch: int = 10) -> AsyncIterator[SharedMetrics]:
        stop, metrics = asyncio.Event(), SharedMetrics(RELAY_METRICS, 1, sources)
        async with AsyncExitStack() as stack:
            enqueuers = {}
            for name in sources:
                connecting = Producer.connect(self.redis_url, self.queue, source=name, backlog_limit=backlog_limit)
                enqueuers[name] = RowEnqueuer(await stack.enter_async_context(connecting), backlog_limit)
            relay = Relay(
                lambda: Outbox.open(self.dsn, TABLE),
                SourceQueues(enqueuers),
                batch=batch,
                poll_interval=0.05,
                metrics=RelayMetrics.on(metrics),
            )
            running = asyncio.create_task(relay.run(stop))
            try:
                yield metrics
            finally:
                stop.set()
                await asyncio.wait_for(running, 20)


@pytest.fixture
async def shops(empty_dsn: str, redis_url: str, queue_name: str) -> AsyncIterator[Shops]:
    await create_outbox(empty_dsn, TABLE, None)
    async with connected(empty_dsn) as sql, Redis.from_url(redis_url) as redis:
        yield Shops(empty_dsn, redis_url, queue_name, redis, sql)


async def test_each_row_goes_into_the_queue_of_its_source_and_is_counted_for_it(shops: Shops) -> None:
    await shops.add("shop-de", "1", "2")
    await shops.add("shop-fr", "1", "3", "4")

    async with shops.relaying("shop-de", "shop-fr") as metrics:
        await becomes(shops.waiting, [])

    assert [await shops.queued(name) for name in ("shop-de", "shop-fr", "")] == [["1", "2"], ["1", "3", "4"], []]
    assert [metrics.total(ROWS, 0, name) for name in ("shop-de", "shop-fr")] == [[2], [3]]


async def test_rows_without_a_source_and_those_of_a_table_without_the_column_belong_to_the_only_source(
    shops: Shops,
) -> None:
    await shops.add("", "1")
    await shops.add("shop-de", "2")

    async with shops.relaying("shop-de"):
        await becomes(shops.waiting, [])
        await shops.sql.execute("ALTER TABLE order_outbox DROP COLUMN source")
        await shops.sql.execute("INSERT INTO order_outbox (order_id) VALUES ('3')")
        await becomes(shops.waiting, [])

    assert await shops.queued("shop-de") == ["1", "2", "3"]


@pytest.mark.parametrize(
    ("sources", "unknown"), [(["shop-de", "shop-fr"], ""), (["shop-de"], "shop-it"), ([""], "shop-it")]
)
async def test_rows_of_an_unknown_source_are_held_and_logged_until_a_relay_knows_it_and_stop_no_other_row(
    shops: Shops, sources: Sequence[str], unknown: str
) -> None:
    held = [f"H-{number}" for number in range(15)]
    await shops.add(unknown, *held)
    await shops.add(sources[0], "1", "2")

    with capture_logs() as logs:
        async with shops.relaying(*sources, batch=10):
            await becomes(lambda: shops.queued(sources[0]), ["1", "2"])
            await eventually(lambda: _logged(logs, "outbox_rows_held"))

    assert await shops.waiting() == held
    assert [(each["rows"], each["unknown_source"]) for each in logs if each["event"] == "outbox_rows_held"] == [
        (15, unknown)
    ]
    if unknown:
        async with shops.relaying(*filter(None, sources), unknown):
            await becomes(shops.waiting, [])
        assert await shops.queued(unknown) == held


async def test_a_full_queue_of_one_source_holds_up_no_row_of_another(shops: Shops) -> None:
    many = [f"A-{number}" for number in range(40)]
    await shops.add("shop-de", *many)
    await shops.add("shop-fr", "1", "2", "3")

    with capture_logs() as logs:
        async with shops.relaying("shop-de", "shop-fr", backlog_limit=4):
            await becomes(lambda: shops.queued("shop-fr"), ["1", "2", "3"])
            full = await shops.queued("shop-de")
            await shops.redis.xtrim(Keys.of(queue_of(shops.queue, "shop-de")).stream, maxlen=0)
            await becomes(lambda: shops.queued("shop-de"), many[4:8])

    assert full == many[:4]
    assert [each["source"] for each in logs if each["event"] == "source_waits"] == ["shop-de"]


async def _logged(logs: Sequence[object], event: str) -> bool:
    return any(isinstance(each, dict) and each["event"] == event for each in logs)
