"""A lock on a table that the statement needs: the log names the table and the session, and orders without that table are stored."""

from collections.abc import AsyncIterator

import pytest
from integration.scene import Scene, ids
from shipped import as_account
from structlog.testing import capture_logs
from support import connected, eventually

from ingest.store.partitioning.partitioning import set_partitions

ORDERS = ids(60)
AUDIT = (
    "CREATE TABLE shop_audit (order_id text)",
    "GRANT INSERT ON shop_audit TO PUBLIC",
    """CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN INSERT INTO shop_audit VALUES (NEW.order_id); RETURN NEW; END $$""",
    # Only some orders need the table.
    "CREATE TRIGGER note BEFORE INSERT ON orders FOR EACH ROW WHEN (NEW.order_id LIKE '%7') EXECUTE FUNCTION note()",
)


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


async def stored(scene: Scene) -> set[str]:
    return {row["order_id"] for row in await scene.sql("SELECT order_id FROM orders")}


async def partition_of_first(scene: Scene) -> tuple[str, set[str]]:
    """A partition with some of the orders, which are stored to find it, and removed again."""
    await scene.enqueue(*ORDERS)
    async with scene.worker("before"):
        await eventually(scene.is_finished)
    rows = await scene.sql("SELECT tableoid::regclass::text AS part, order_id FROM orders")
    await scene.sql("DELETE FROM orders")
    part = rows[0]["part"]
    return part, {row["order_id"] for row in rows if row["part"] == part}


@pytest.mark.parametrize("kind", ["a table of a trigger", "a partition"])
async def test_orders_that_do_not_need_the_locked_table_are_stored_and_the_others_later_without_another_request(
    kind: str, scene: Scene
) -> None:
    if kind == "a partition":
        await set_partitions(as_account(scene.dsn, "ingest_owner"), 4)
        table, waiting = await partition_of_first(scene)
    else:
        table, waiting = "shop_audit", {order_id for order_id in ORDERS if order_id.endswith("7")}
        for statement in AUDIT:
            await scene.sql(statement)
    before = scene.api.stats().requests
    with capture_logs() as logs:
        async with scene.worker(), connected(scene.dsn) as other:
            async with other.transaction():
                # As for a new index. A lock that blocks reads concerns the statements of all partitions.
                await other.execute(f"LOCK TABLE {table} IN SHARE MODE")
                await scene.enqueue(*ORDERS)

                async def others_are_stored() -> bool:
                    return await stored(scene) == set(ORDERS) - waiting

                await eventually(others_are_stored)
                locker = other.get_server_pid()
            await eventually(scene.is_finished)

    assert await stored(scene) == set(ORDERS)
    assert scene.api.stats().requests == before + len(ORDERS)
    assert [each for each in logs if each["event"] == "locked_row_postponed"] == []
    errors = [each["error"] for each in logs if each["event"] == "unavailable"]
    assert errors
    assert all(f"session {locker} " in each and f"has locked the table {table}: " in each for each in errors)
    assert [each["event"] for each in logs if each["event"] == "available_again"] == ["available_again"]


async def test_while_all_orders_need_the_locked_table_they_are_held(scene: Scene) -> None:
    with capture_logs() as logs:
        async with scene.worker(history="1d"), connected(scene.dsn) as other:
            async with other.transaction():
                await other.execute("LOCK TABLE order_history")
                await scene.enqueue(*ORDERS)

                async def is_named() -> bool:
                    return any("locked the table order_history" in str(each.get("error")) for each in logs)

                await eventually(is_named)
                assert await scene.redis.zcard(scene.keys.retry) == 0
            await eventually(scene.is_finished)

    assert await stored(scene) == set(ORDERS)
    assert scene.api.stats().requests == len(ORDERS)
    assert [each for each in logs if each["event"] == "locked_row_postponed"] == []
