"""Settlement against real servers that refuse, restart and forget: what is stored, acked and dead-lettered, and in which
order."""

import asyncio
import math
from collections.abc import AsyncIterator, Sequence

import pytest
from consumers import Consumer
from integration.holding import Holder
from integration.scene import Scene, assert_right, document, ids, unguarded
from support import connected, eventually

from ingest.domain.deliveries.delivery import DeadReason, Effect, EntryRef, RetryReason
from ingest.domain.deliveries.outcome import DeadLetter, Retry
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.servers import EmbeddedServers
from ingest.services.worker_parts import Classes
from ingest.store.orders.order_store import OrderStore


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


@pytest.fixture
async def fragile(own_servers: EmbeddedServers, queue_name: str) -> AsyncIterator[Scene]:
    """A scene on servers that may be killed."""
    async with Scene.open_fragile(own_servers, queue_name) as scene:
        yield scene


class CountingStore(OrderStore):
    """Remembers how many rows each statement had."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self.statements: list[int] = []

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        self.statements.append(len(rows))
        return await super().upsert(rows)


async def settle_as_one_batch(store: OrderStore, consumer: Consumer, count: int) -> None:
    """Read `count` entries, and store them as a single batch."""
    holder = Holder(consumer, rows=count)
    deliveries = await holder.read(count)
    bodies = {delivery.order_id: document(delivery.order_id) for delivery in deliveries if delivery.order_id}
    await holder.store(deliveries, bodies, store)
    assert len(holder.in_flight) == 0


async def refuse(scene: Scene, order_id: str) -> None:
    """Let PostgreSQL refuse one order that our own checks let pass."""
    await scene.sql(f"ALTER TABLE orders ADD CONSTRAINT no_such_order CHECK (order_id <> '{order_id}')")


@pytest.mark.parametrize("bad", [250, 499])
async def test_one_row_that_postgresql_refuses_is_found_by_halving_and_dead_lettered_alone(
    scene: Scene, bad: int
) -> None:
    await refuse(scene, f"order-{bad}")
    await scene.enqueue(*ids(500))

    async with CountingStore.open(scene.dsn) as store, scene.consumer("w") as consumer:
        await settle_as_one_batch(store, consumer, 500)

        assert store.statements[0] == 500
        # And two to make sure: that row once more, and one that was stored.
        assert len(store.statements) <= 2 * math.ceil(math.log2(500)) + 1 + 2
    (letter,) = await scene.dead()
    assert (letter["order_id"], letter["reason"]) == (f"order-{bad}", "unstorable")
    assert "no_such_order" in letter["error"]
    assert "23514" in letter["error"]
    assert "Norway" not in letter["error"], "a customer's data"
    assert_right(await scene.rows(), [order_id for order_id in ids(500) if order_id != f"order-{bad}"])
    assert await scene.is_finished()


async def test_several_refused_rows_are_each_dead_lettered_once_and_the_others_stored(scene: Scene) -> None:
    await scene.sql("ALTER TABLE orders ADD CONSTRAINT no_tens CHECK (order_id !~ '0$')")
    await scene.enqueue(*ids(100))

    async with scene.worker(concurrency=50) as worker:
        await scene.finished()

        assert worker.metric("ingest_orders_total", outcome="dead") == 10
        assert worker.metric("ingest_orders_total", outcome="stored") == 90
    assert sorted(letter["order_id"] for letter in await scene.dead()) == [f"order-{n}" for n in range(0, 100, 10)]
    assert_right(await scene.rows(), [order_id for order_id in ids(100) if not order_id.endswith("0")])


async def test_a_row_refused_only_at_the_commit_is_dead_lettered_and_not_acked_as_stored(scene: Scene) -> None:
    await scene.sql(
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        " IF new.order_id = 'order-7' THEN RAISE 'refused late' USING ERRCODE = '23514'; END IF; RETURN NULL; END $$"
    )
    await scene.sql(
        "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED"
        " FOR EACH ROW EXECUTE FUNCTION refuse()"
    )
    await scene.enqueue(*ids(20))

    async with scene.worker():
        await scene.finished()

    assert [(letter["order_id"], letter["reason"]) for letter in await scene.dead()] == [("order-7", "unstorable")]
    assert_right(await scene.rows(), [order_id for order_id in ids(20) if order_id != "order-7"])


@pytest.mark.parametrize("sqlstate", ["40P01", "53100"])
async def test_a_fault_of_postgresql_itself_holds_the_batch_and_dead_letters_nothing(
    scene: Scene, sqlstate: str
) -> None:
    await scene.sql("CREATE TABLE sick (since timestamptz)")
    await scene.sql("INSERT INTO sick VALUES (now())")
    await scene.sql("CREATE SEQUENCE met")  # counts failures too: no rollback takes a sequence back
    await scene.sql(
        "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN"
        f" IF EXISTS (SELECT FROM sick) THEN PERFORM nextval('met'); RAISE 'sick' USING ERRCODE = '{sqlstate}'; END IF; RETURN new; END $$"
    )
    await scene.sql("CREATE TRIGGER fail BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION fail()")
    await scene.enqueue(*ids(100))

    async with scene.worker(concurrency=10, batch_rows=20) as worker:

        async def full() -> bool:
            met = (await scene.sql("SELECT last_value FROM met"))[0][0]
            return met > 1 and await scene.pending_count() >= 30

        await eventually(full)
        assert await scene.stored() == 0
        await scene.sql("DELETE FROM sick")
        await scene.finished()

        assert worker.metric("ingest_orders_total", outcome="retried") == 0
    assert await scene.dead() == []
    rows = await scene.rows()
    assert_right(rows, ids(100))
    assert {row["attempts"] for row in rows.values()} == {1}


async def test_nothing_is_acked_before_its_commit(scene: Scene) -> None:
    await scene.enqueue(*ids(10))
    async with scene.worker(concurrency=10):
        await scene.finished()
        blocker_waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'orders'::regclass"

        async with connected(scene.dsn) as blocker, blocker.transaction():
            await blocker.execute("LOCK TABLE orders IN ACCESS EXCLUSIVE MODE")
            await scene.enqueue(*ids(10, "next"))

            async def commit_waits() -> bool:
                return bool((await scene.sql(blocker_waits))[0][0])

            await eventually(commit_waits)
            for _ in range(50):
                assert await scene.pending_count() > 0
                assert await scene.redis.xlen(scene.keys.stream) == 10
        await scene.finished()
    assert_right(await scene.rows(), ids(10) + ids(10, "next"))


async def test_a_batch_that_was_not_acked_comes_again_and_changes_nothing(scene: Scene) -> None:
    class DiesInsteadOfAcking(Consumer):
        async def ack(self, entries: Sequence[EntryRef]) -> int:
            del entries
            await asyncio.Event().wait()
            return 0

    await scene.enqueue(*ids(20))
    async with scene.worker("slot", Classes(consumer=DiesInsteadOfAcking)):
        await scene.stored_at_least(20)
    before = await scene.rows()
    assert len(await scene.pending()) == 20

    async with scene.worker("slot") as heir:
        await scene.finished()

        assert heir.metric("ingest_orders_total", outcome="unchanged") == 20
    assert unguarded(await scene.rows()) == unguarded(before)


async def test_a_move_whose_reply_was_lost_is_not_done_twice(scene: Scene) -> None:
    await scene.enqueue("retried", "dead-lettered")
    async with scene.consumer("w") as consumer:
        retried, dead_lettered = await consumer.read(10, 1.0)
        outcome = Retry(3600, 2, RetryReason.HTTP_STATUS, "later")

        assert await consumer.reschedule(retried, outcome.after, outcome.attempt)
        assert not await consumer.reschedule(retried, outcome.after, outcome.attempt)
        assert not await consumer.dead_letter(retried, DeadReason.NOT_FOUND, "no")
        dead_letter = DeadLetter(DeadReason.NOT_FOUND, "404")
        assert await consumer.dead_letter(dead_lettered, dead_letter.reason, dead_letter.error)
        assert not await consumer.dead_letter(dead_lettered, dead_letter.reason, dead_letter.error)
        assert not await consumer.reschedule(dead_lettered, 0, 2)

    state = await scene.state()
    assert (state.retries, state.dead, state.pending, state.depth) == (1, 1, 0, 0)


async def test_postgresql_killed_in_mid_run_costs_no_order_and_no_attempt(
    fragile: Scene, own_servers: EmbeddedServers
) -> None:
    fragile.api.behave(latency="0.02")
    await fragile.enqueue(*ids(400))

    async with fragile.worker(concurrency=10, batch_rows=20) as worker:
        await fragile.stored_at_least(50)
        await asyncio.to_thread(own_servers.postgres.kill)

        async def full() -> bool:
            # Everything that was read has been requested as well.
            state = await fragile.state()
            return state.pending == 30 and fragile.api.stats().requests == 400 - (state.depth or 0)

        await eventually(full)
        requests, pending = fragile.api.stats().requests, await fragile.pending_count()
        for _ in range(20):
            assert await fragile.pending_count() == pending, "reading stops when the worker is full"
        assert fragile.api.stats().requests == requests
        await asyncio.to_thread(own_servers.postgres.start)
        await fragile.finished()

        assert worker.metric("ingest_orders_total", outcome="retried") == 0
    assert await fragile.dead() == []
    rows = await fragile.rows()
    assert_right(rows, ids(400))
    assert {row["attempts"] for row in rows.values()} == {1}


async def test_redis_killed_in_mid_run_costs_no_order(fragile: Scene, own_servers: EmbeddedServers) -> None:
    fragile.api.behave(latency="0.02", error_rate=0.2)
    fragile.api.behave(fail_first=1)
    await fragile.enqueue(*ids(400))

    async with fragile.worker(concurrency=10):
        await fragile.stored_at_least(50)
        await asyncio.to_thread(own_servers.valkey.kill)
        await asyncio.to_thread(own_servers.valkey.start)
        await fragile.finished()

    assert await fragile.dead() == []
    assert_right(await fragile.rows(), ids(400))


async def test_an_outage_of_redis_longer_than_what_is_in_flight_is_waited_out(
    fragile: Scene, own_servers: EmbeddedServers
) -> None:
    fragile.api.behave(latency="0.05")
    await fragile.enqueue(*ids(60))

    async with fragile.worker(concurrency=10) as worker:
        await fragile.stored_at_least(10)
        await asyncio.to_thread(own_servers.valkey.kill)

        async def idle() -> bool:
            return worker.metric("ingest_in_flight") == 0

        await eventually(idle)
        assert not worker.task.done()
        await asyncio.to_thread(own_servers.valkey.start)
        await fragile.finished()

    assert await fragile.dead() == []
    assert_right(await fragile.rows(), ids(60))


async def test_a_stream_that_was_deleted_is_made_again_and_the_work_goes_on(scene: Scene) -> None:
    scene.api.behave(latency="0.3")
    await scene.enqueue(*ids(10))

    async with scene.worker():

        async def are_in_flight() -> bool:
            return scene.api.stats().requests == 10

        await eventually(are_in_flight)
        await scene.redis.delete(scene.keys.stream)
        await scene.enqueue(*ids(10, "later"))
        await scene.stored_at_least(20)
        await scene.finished()

    assert await scene.dead() == []
    assert_right(await scene.rows(), ids(10) + ids(10, "later"))


async def test_after_a_flush_of_all_of_redis_the_work_goes_on(fragile: Scene) -> None:
    async with fragile.worker():
        await fragile.enqueue(*ids(10))
        await fragile.finished()
        await fragile.redis.flushall()
        await fragile.redis.script_flush()
        await fragile.enqueue(*ids(10, "later"))
        await fragile.stored_at_least(20)
        await fragile.finished()

    assert_right(await fragile.rows(), ids(10) + ids(10, "later"))
