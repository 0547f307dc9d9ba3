"""Erased means erased: wherever an order is at that moment, nothing of it remains, and it does not come back."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg
import msgspec
import pytest
from dead_letter_entries import open_dead_letters
from integration.scene import GROUP, Scene, document
from shipped import as_api
from support import connected, eventually

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.deliveries.selection import Selection
from ingest.domain.errors import QueueUnavailable, StoreUnavailable
from ingest.domain.operating.jobs import JobKind
from ingest.domain.orders.order import decode_order
from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.order_state import IngestionState
from ingest.operations.backends import Backends
from ingest.operations.stored_orders.order_connections import OrderConnections
from ingest.operations.stored_orders.order_places import locate
from ingest.operations.stored_orders.orders import Erased, Orders, erase
from ingest.store.connections.pool import Pool
from ingest.store.orders.order_store import OrderStore

MARK = "Kjetil Andersen, Storgata 1"
NO_REDIS = "redis://127.0.0.1:1/0"


@pytest.fixture
def backends(redis_url: str, dsn: str, queue_name: str) -> Backends:
    return Backends(as_api(redis_url), as_api(dsn), queue_name, GROUP)


@asynccontextmanager
async def opened_orders(backends: Backends) -> AsyncIterator[Orders]:
    """The operations of a long-running process."""
    async with (
        OrderConnections.open(backends.redis_url, backends.postgres_dsn) as connections,
        Orders.open(backends, connections) as orders,
    ):
        yield orders


def pushed(order_id: str) -> bytes:
    """A document with customer data in it."""
    return document(order_id).replace(b'"customer_id":null', b'"customer_id":"%s"' % MARK.encode())


async def everything_in_redis(scene: Scene) -> bytes:
    """All that is kept of the queue."""
    keys = [key async for key in scene.redis.scan_iter(match="*") if scene.queue.encode() in key]
    return b"".join([await scene.redis.dump(key) or b"" for key in keys])


async def bring_to_every_place(scene: Scene) -> None:
    """Have X stored, dead, and waiting for a retry."""
    async with scene.worker(keep_document="on") as worker:
        await scene.add(order_id="X", document=pushed("X"))
        await scene.finished()
        # The last read of a worker that dies may still be given an entry.
        await worker.stop()
    for _ in range(2):
        await scene.add(order_id="X", document=pushed("X"))
    async with scene.consumer("by hand") as consumer:
        dead, retried = await consumer.read(2, 1.0)
        await consumer.dead_letter(dead, DeadReason.UNSTORABLE, "a check failed")
        await consumer.reschedule(retried, 3_600.0, 2)


@pytest.mark.parametrize("status", [500, 404])
async def test_an_order_is_erased_that_is_queued_in_flight_retrying_dead_and_stored(
    scene: Scene, backends: Backends, status: int
) -> None:
    await bring_to_every_place(scene)
    await scene.add(order_id="known", document=pushed("known"))
    scene.api.behave(latency="0.5", breaking_id="X", error_status=status)
    async with scene.worker(concurrency=1):
        await scene.enqueue("X")
        await eventually(lambda: _requests(scene, 1))
        await scene.add(order_id="X", document=pushed("X"))
        await scene.enqueue("X")
        [before] = await locate([backends], ["X"])

        erased = await erase(backends, ["X"], "test")
        await scene.finished()
        [after] = await locate([backends], ["X"])

    assert {entry.state for entry in before.entries} == {
        IngestionState.IN_FLIGHT,
        IngestionState.QUEUED,
        IngestionState.RETRYING,
        IngestionState.DEAD,
    }
    assert before.row is not None
    assert erased == Erased(rows=1, retries=1, dead_letters=1)
    assert (after.state, after.row, after.entries) == (IngestionState.ERASED, None, ())
    assert "X" not in await scene.rows()
    assert MARK.encode() not in await everything_in_redis(scene)


async def _requests(scene: Scene, count: int) -> bool:
    return scene.api.stats().requests >= count


async def test_an_erased_order_that_is_announced_pushed_or_replayed_does_not_come_back(
    scene: Scene, backends: Backends
) -> None:
    await erase(backends, ["X"], "test")
    await scene.redis.xadd(scene.keys.dead, {"order_id": "X", "document": pushed("X"), "reason": "rejected"})

    async with scene.worker(), opened_orders(backends) as orders:
        await scene.enqueue("X", "kept")
        await scene.add(order_id="X", document=pushed("X"))
        async with open_dead_letters(scene.redis_url, scene.queue) as dead:
            await dead.change(JobKind.REPLAY, Selection(everything=True))
        await scene.stored_at_least(1)
        await scene.finished()
        again = await orders.erase("X", "test")

    assert set(await scene.rows()) == {"kept"}
    assert MARK.encode() not in await everything_in_redis(scene)
    assert again == Erased(0, 0, 0)


async def test_an_erasure_that_redis_interrupts_holds_and_is_finished_by_the_next(
    scene: Scene, backends: Backends
) -> None:
    await bring_to_every_place(scene)

    with pytest.raises(QueueUnavailable):
        await erase(Backends(NO_REDIS, backends.postgres_dsn, backends.stream, GROUP), ["X"], "test")
    rows = await scene.rows()
    [between] = await locate([backends], ["X"])
    erased = await erase(backends, ["X"], "test")

    assert rows == {}
    assert (between.state, len(between.entries)) == (IngestionState.ERASED, 2)
    assert erased == Erased(rows=0, retries=1, dead_letters=1)
    assert MARK.encode() not in await everything_in_redis(scene)
    keys = scene.keys
    assert not await scene.redis.exists(keys.retry, keys.retry_entries, keys.retry_announced)
    phases = await scene.sql("SELECT phase, actor, action, selection, count FROM audit_log ORDER BY id")
    assert [tuple(row) for row in phases] == [
        ("begun", "test", "orders.erase", '{"ids": ["X"]}', 1),
        ("failed", "test", "orders.erase", '{"ids": ["X"]}', 1),
        ("begun", "test", "orders.erase", '{"ids": ["X"]}', 0),
        ("done", "test", "orders.erase", '{"ids": ["X"]}', 2),
    ]


async def test_without_the_database_nothing_is_erased(scene: Scene, backends: Backends) -> None:
    await bring_to_every_place(scene)

    with pytest.raises(StoreUnavailable):
        await erase(Backends(backends.redis_url, "postgresql://127.0.0.1:1/none", scene.queue, GROUP), ["X"], "test")

    [state] = await locate([backends], ["X"])
    assert (state.erased_at, len(state.entries)) == (None, 2)


async def test_the_retries_and_dead_letters_of_all_groups_are_removed(scene: Scene, backends: Backends) -> None:
    for lane in scene.keys.lanes:
        await scene.redis.xgroup_create(lane.stream, "audit", id="0", mkstream=True)
    audit = Backends(backends.redis_url, backends.postgres_dsn, scene.queue, "audit")
    await scene.redis.xadd(f"{scene.keys.dead}:audit", {"order_id": "X", "document": pushed("X")})
    assert [entry.state for [state] in [await locate([audit], ["X"])] for entry in state.entries] == ["dead"]

    erased = await erase(backends, ["X"], "test")

    assert erased == Erased(rows=0, retries=0, dead_letters=1)
    assert MARK.encode() not in await everything_in_redis(scene)


async def test_retries_whose_names_are_not_text_are_removed(scene: Scene, backends: Backends) -> None:
    packed = msgspec.msgpack.encode(["order_id", "X", "document", pushed("X").decode()])
    for name in (b"\xff", b"\\xff"):
        await scene.redis.hset(scene.keys.retry_entries, name, packed)  # type: ignore[arg-type]
        await scene.redis.zadd(scene.keys.retry, {name: 9e12})

    erased = await erase(backends, ["X"], "test")

    assert erased == Erased(rows=0, retries=2, dead_letters=0)
    assert MARK.encode() not in await everything_in_redis(scene)


async def test_a_group_whose_name_is_not_text_does_not_prevent_an_erasure(scene: Scene, backends: Backends) -> None:
    for name in (b"\xff", b"zeta"):
        await scene.redis.xgroup_create(scene.keys.stream, name, id="0", mkstream=True)
    await scene.redis.xadd(f"{scene.keys.dead}:zeta", {"order_id": "X"})

    assert await erase(backends, ["X"], "test") == Erased(rows=0, retries=0, dead_letters=1)


async def test_concurrent_erasures_share_a_search_and_tell_what_their_own_order_had(
    scene: Scene, backends: Backends
) -> None:
    names = [f"order-{number}" for number in range(30)]
    for number, order_id in enumerate(names):
        for _ in range(number % 3):
            await scene.redis.xadd(scene.keys.dead, {"order_id": order_id, "reason": "rejected"})

    async with opened_orders(backends) as orders:
        erased = await asyncio.gather(*(orders.erase(order_id, "test") for order_id in names))

    assert [each.dead_letters for each in erased] == [number % 3 for number in range(30)]
    assert await scene.dead() == []


async def test_a_batch_that_is_being_stored_is_waited_for_and_the_next_finds_it_erased(
    dsn: str, backends: Backends
) -> None:
    row = OrderRow.of(decode_order(document("536365"), "536365"), datetime.now(UTC), 1, 0.0)
    async with connected(dsn) as worker, connected(dsn) as watcher, OrderStore.open(dsn) as orders:
        storing = worker.transaction()
        await storing.start()
        await worker.execute(
            "INSERT INTO orders (order_id, status, currency, placed_at, line_count, total, lines, version, fetched_at,"
            " attempts, enqueued_at, ingested_at)"
            " VALUES ('536365', 'placed', 'EUR', now(), 0, 0, '[]', now(), now(), 1, now(), now())"
        )

        async def waiting(count: int) -> bool:
            return count == await watcher.fetchval(
                "SELECT count(*) FROM pg_locks JOIN pg_class ON oid = relation WHERE relname = 'orders' AND NOT granted"
            )

        erasing = asyncio.create_task(erase(backends, ["536365"], "test"))
        await eventually(lambda: waiting(1))
        next_batch = asyncio.create_task(orders.upsert([row]))
        await eventually(lambda: waiting(2))
        await storing.commit()
        erased, _ = await asyncio.gather(erasing, next_batch)

        assert erased.rows == 1
        assert await watcher.fetchval("SELECT count(*) FROM orders") == 0


async def test_erasures_of_a_process_share_its_connections(scene: Scene, backends: Backends) -> None:
    async with connected(scene.dsn) as sql, opened_orders(backends) as orders:
        await sql.execute(
            "CREATE TABLE sessions (pid int);"
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = public"
            " AS $$ BEGIN INSERT INTO sessions VALUES (pg_backend_pid()); RETURN NULL; END $$;"
            "CREATE TRIGGER notes AFTER INSERT ON erased_orders FOR EACH ROW EXECUTE FUNCTION note()"
        )

        for order_id in ("a", "b", "c"):
            await orders.erase(order_id, "test")

        [[erasures, sessions]] = await sql.fetch("SELECT count(*), count(DISTINCT pid) FROM sessions")
    assert (erasures, sessions) == (3, 1)


async def test_a_bug_within_a_transaction_leaves_no_table_locked(scene: Scene) -> None:
    async def fail(connection: asyncpg.Connection) -> None:
        await connection.execute("LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE")
        raise ValueError("a bug")

    async with Pool.open(scene.dsn, size=1) as pool, connected(scene.dsn) as sql:
        with pytest.raises(ValueError, match="a bug"):
            await pool.transact(fail)

        async with sql.transaction():
            await sql.execute("LOCK TABLE orders IN SHARE ROW EXCLUSIVE MODE NOWAIT")
