"""Batches that are too slow and documents that are large: halved, bounded, and never in the way of the heartbeat."""

import asyncio
from collections.abc import Sequence
from functools import partial

import msgspec
import pytest
from consumers import Consumer
from integration.scene import Scene, assert_right, ids
from structlog.testing import capture_logs
from support import connected, eventually

from ingest.domain.deliveries.clock_bounds import ClockBounds, unknown_time
from ingest.domain.deliveries.delivery import Effect, Heartbeat
from ingest.domain.operating.source_state import NO_REPORT, ProcessReport
from ingest.domain.orders.order_row import OrderRow
from ingest.services.worker_parts import Classes
from ingest.store.orders.order_store import OrderStore

MB = 1_000_000


class Hurried(OrderStore):
    """Waits for two seconds where others wait for fifteen, and remembers its statements."""

    timeout = 2.0
    statements: list[tuple[int, bool]]

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        self.statements.append((len(rows), False))
        effects = await super().upsert(rows)
        self.statements[-1] = (len(rows), True)
        return effects


@pytest.fixture
def hurried() -> type[Hurried]:
    return type("Hurried", (Hurried,), {"statements": []})


async def make_slow(scene: Scene, seconds: float) -> None:
    """Let each row take so long, while the table `slow` contains a row."""
    await scene.sql("CREATE TABLE slow (since timestamptz)")
    await scene.sql("GRANT SELECT ON slow TO ingest")
    await scene.sql("INSERT INTO slow VALUES (now())")
    await scene.sql(
        "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN IF EXISTS (SELECT FROM slow) THEN PERFORM pg_sleep({seconds}); END IF; RETURN new; END $$"
    )
    await scene.sql("CREATE TRIGGER wait BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION wait()")


def large(order_id: str, size: int) -> bytes:
    """A document of about so many bytes."""
    line = {"sku": "85123A", "description": "WHITE HANGING HEART T-LIGHT HOLDER", "quantity": 6, "unit_price": "2.55"}
    return msgspec.json.encode(
        {
            "id": order_id,
            "status": "placed",
            "placed_at": "2026-01-02T03:04:05Z",
            "currency": "EUR",
            "lines": [line] * (size // 100),
        }
    )


async def test_batches_grow_again_when_the_database_is_quick_again(scene: Scene, hurried: type[Hurried]) -> None:
    await make_slow(scene, 0.1)
    await scene.enqueue(*ids(64))

    async with scene.worker(classes=Classes(store=hurried), concurrency=64):
        await scene.stored_at_least(1)
        await scene.sql("DELETE FROM slow")
        await scene.finished()
        scene.api.behave(latency="0.2")
        for turn in range(6):
            await scene.enqueue(*ids(64, f"turn-{turn}"))
            await scene.finished()

    assert max(rows for rows, is_done in hurried.statements[-12:] if is_done) > 32


async def end_connections(scene: Scene, most: int) -> None:
    """Let the server end the connection of a statement that inserts more rows, as if it lacked memory for them."""
    await scene.sql(
        "CREATE FUNCTION end_it() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF (SELECT count(*) FROM added) > {most} THEN PERFORM pg_terminate_backend(pg_backend_pid()); END IF;"
        " RETURN NULL; END $$"
    )
    await scene.sql(
        "CREATE TRIGGER end_it AFTER INSERT ON orders REFERENCING NEW TABLE AS added EXECUTE FUNCTION end_it()"
    )


async def test_a_batch_for_which_the_server_ends_the_connection_is_halved_until_it_does_not(
    scene: Scene, hurried: type[Hurried]
) -> None:
    await end_connections(scene, 4)
    order_ids = ids(40)
    await scene.enqueue(*order_ids)

    async with scene.worker(classes=Classes(store=hurried), concurrency=40) as worker:
        await scene.finished()

        assert worker.metric("ingest_orders_total", outcome="retried") == 0
    assert [rows for rows, is_done in hurried.statements if is_done and rows > 4] == []
    assert_right(await scene.rows(), order_ids)


async def test_a_batch_that_needs_more_room_than_the_server_allows_is_halved_until_it_does_not(
    scene: Scene, hurried: type[Hurried]
) -> None:
    database = scene.dsn.rpartition("/")[2]
    for setting in ("temp_file_limit = '200kB'", "work_mem = '64kB'"):
        await scene.sql(f"ALTER DATABASE {database} SET {setting}")
    order_ids = ids(24)
    for order_id in order_ids:
        scene.api.put_order(order_id, large(order_id, 50_000))
    await scene.enqueue(*order_ids)

    async with connected(scene.dsn) as blocker, scene.worker(classes=Classes(store=hurried), concurrency=24):
        async with blocker.transaction():
            await blocker.execute("LOCK TABLE orders")

            await eventually(lambda: scene.api.stats().requests == len(order_ids))
        await scene.finished()

    assert max(rows for rows, is_done in hurried.statements if not is_done) > 4
    assert_right(await scene.rows(), order_ids)


async def test_an_order_for_which_the_server_always_ends_the_connection_is_waited_for_and_named(
    scene: Scene, hurried: type[Hurried]
) -> None:
    await end_connections(scene, 0)
    await scene.enqueue("ends-it")

    with capture_logs() as logged:
        async with scene.worker(classes=Classes(store=hurried)):
            await eventually(lambda: any("order ends-it, alone" in str(line.get("error")) for line in logged))
            assert (await scene.dead(), await scene.redis.zcard(scene.keys.retry)) == ([], 0)
            await scene.sql("DROP TRIGGER end_it ON orders")
            await scene.finished()

    assert_right(await scene.rows(), ["ends-it"])


async def test_a_row_that_is_too_slow_alone_is_waited_for(scene: Scene, hurried: type[Hurried]) -> None:
    await make_slow(scene, 600)
    await scene.enqueue("slow")

    async with scene.worker(classes=Classes(store=hurried)):
        await eventually(lambda: len(hurried.statements) >= 2)
        assert (await scene.dead(), await scene.redis.zcard(scene.keys.retry)) == ([], 0)
        await scene.sql("DELETE FROM slow")
        await scene.finished()

    assert_right(await scene.rows(), ["slow"])


async def first_retry(scene: Scene) -> bytes:
    [name] = await scene.redis.zrange(scene.keys.retry, 0, 0)
    return bytes(name)


def waits(hurried: type[Hurried]) -> int:
    """How many statements have waited until they were ended."""
    return sum(not is_done for _, is_done in hurried.statements)


async def due_at_once(scene: Scene) -> None:
    await eventually(lambda: scene.redis.zcard(scene.keys.retry))
    await scene.redis.zadd(scene.keys.retry, {await first_retry(scene): 0})


async def test_an_order_that_is_still_locked_keeps_nothing_waiting_when_it_comes_again(
    scene: Scene, hurried: type[Hurried]
) -> None:
    async def comes_again(times: int) -> bool:
        """It was requested, and has been postponed again."""
        return scene.api.stats().by_id["locked"] == 3 + times and bool(await scene.redis.zcard(scene.keys.retry))

    await scene.enqueue("locked")

    async with connected(scene.dsn) as blocker:
        async with scene.worker("first", classes=Classes(store=hurried)):
            await scene.finished()
            transaction = blocker.transaction()
            await transaction.start()
            await blocker.execute("SELECT FROM orders WHERE order_id = 'locked' FOR UPDATE")
            await scene.enqueue("locked")
            await eventually(lambda: scene.redis.zcard(scene.keys.retry))
        waited = waits(hurried)
        async with scene.worker("second", classes=Classes(store=hurried)):
            for turn in range(3):
                await due_at_once(scene)
                await eventually(partial(comes_again, turn))
                await scene.enqueue(*ids(20, f"turn-{turn}"))
                await scene.stored_at_least(1 + 20 * (turn + 1))
            assert waits(hurried) == waited == 1
            await transaction.rollback()
            await due_at_once(scene)
            await scene.finished()


class Watched(Consumer):
    """Counts heartbeats that are the first one or follow a break, according to Redis."""

    first = 0

    async def heartbeat(
        self, lifetime: float, clock: ClockBounds = unknown_time, report: ProcessReport = NO_REPORT
    ) -> Heartbeat:
        heartbeat = await super().heartbeat(lifetime, clock, report)
        type(self).first += heartbeat.is_first
        return heartbeat


async def test_many_large_documents_do_not_hold_up_the_heartbeat(scene: Scene) -> None:
    watched: type[Watched] = type("Watched", (Watched,), {})
    order_ids = ids(24)
    for order_id in order_ids:
        scene.api.put_order(order_id, large(order_id, 3 * MB))
    await scene.enqueue(*order_ids)

    async with scene.worker(
        classes=Classes(partition=watched),
        concurrency=24,
        heartbeat_ttl=3.0,
        upstream_timeout=120,
        upstream_read_timeout=120,
    ) as worker:
        await scene.finished(within=120)

        assert watched.first == 1
        assert worker.metric("ingest_orders_total", outcome="retried") == 0
    assert_right(await scene.rows(), order_ids)


async def test_one_statement_has_few_large_documents(scene: Scene) -> None:
    sizes: list[int] = []

    class Measuring(OrderStore):
        async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
            sizes.append(sum(len(row.lines) for row in rows))
            return await super().upsert(rows)

    order_ids = ids(24)
    for order_id in order_ids:
        scene.api.put_order(order_id, large(order_id, MB))
    await scene.enqueue(*order_ids)

    async with connected(scene.dsn) as blocker:
        transaction = blocker.transaction()
        await transaction.start()
        await blocker.execute("LOCK TABLE orders")
        async with scene.worker(classes=Classes(store=Measuring), concurrency=24):
            await eventually(lambda: scene.api.stats().requests == len(order_ids))
            await asyncio.shield(transaction.rollback())
            await scene.finished(within=60)

    assert max(sizes) <= 8 * 1024 * 1024
    assert max(sizes) > 3 * MB
    assert_right(await scene.rows(), order_ids)
