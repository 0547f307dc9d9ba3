"""Settlement on real servers that reject, restart and lose data. The tests check stored, acked and dead-lettered orders, and in which
order."""

import asyncio
import math
from collections.abc import Sequence

import pytest
from consumers import Consumer
from integration.holding import Holder
from integration.scene import Scene, assert_right, document, ids
from support import eventually

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.servers import EmbeddedServers
from ingest.store.orders.order_store import OrderStore


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
    """Let PostgreSQL reject one order that passes our own checks."""
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
        # Two more to make sure, the same row again and a stored row.
        assert len(store.statements) <= 2 * math.ceil(math.log2(500)) + 1 + 2
    (letter,) = await scene.dead()
    assert (letter["order_id"], letter["reason"]) == (f"order-{bad}", "unstorable")
    assert "no_such_order" in letter["error"]
    assert "23514" in letter["error"]
    assert "Norway" not in letter["error"], "a customer's data"
    assert_right(await scene.rows(), [order_id for order_id in ids(500) if order_id != f"order-{bad}"])
    assert await scene.is_finished()


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


async def test_a_stream_that_was_deleted_is_made_again_and_the_work_goes_on(scene: Scene) -> None:
    scene.api.behave(latency="0.3")
    await scene.enqueue(*ids(10))

    async with scene.worker():
        await eventually(lambda: scene.api.stats().requests == 10)
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
