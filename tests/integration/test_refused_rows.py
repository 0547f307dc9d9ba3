"""PostgreSQL rejects rows. A row is at fault only with evidence, and other orders continue."""

from collections.abc import AsyncIterator, Sequence
from typing import ClassVar

import pytest
from integration.scene import RunningWorker, Scene, assert_right, ids
from integration.watching import until
from structlog.testing import capture_logs

from ingest.domain.deliveries.delivery import Effect
from ingest.domain.errors import RowsRefused
from ingest.domain.orders.order_row import OrderRow
from ingest.services.worker_parts import Classes
from ingest.store.orders.order_store import OrderStore

ORDERS = ids(100)
# Changes of the table that reject every row, and their repair.
BROKEN = {
    "a trigger without an error code": (
        "CREATE TRIGGER raises BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION raise_plainly()",
        "DROP TRIGGER raises ON orders",
    ),
    "a column that nobody fills": (
        "ALTER TABLE orders ADD COLUMN tenant text NOT NULL",
        "ALTER TABLE orders DROP COLUMN tenant",
    ),
    "a check that every row misses": (
        "ALTER TABLE orders ADD CONSTRAINT checked CHECK (currency = 'nothing')",
        "ALTER TABLE orders DROP CONSTRAINT checked",
    ),
    "a trigger that makes a mistake": (
        "CREATE TRIGGER mistaken BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION mistake()",
        "DROP TRIGGER mistaken ON orders",
    ),
    "a trigger at the commit": (
        (
            "CREATE CONSTRAINT TRIGGER late AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION refuse()"
        ),
        "DROP TRIGGER late ON orders",
    ),
    "a trigger that suppresses every row": (
        "CREATE TRIGGER suppresses BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION suppress()",
        "DROP TRIGGER suppresses ON orders",
    ),
}
SUPPRESSED = "a trigger kept the row from being stored"


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        await scene.sql(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$"
            " BEGIN RAISE 'refused' USING ERRCODE = '23514'; END $$"
        )
        await scene.sql(
            "CREATE FUNCTION raise_plainly() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'refused'; END $$"
        )
        await scene.sql(
            "CREATE FUNCTION mistake() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM FROM gone; END $$"
        )
        await scene.sql("CREATE FUNCTION suppress() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$")
        yield scene


class Counting(OrderStore):
    """Counts statements that were rejected or whose rows were suppressed, and records their orders."""

    refused = 0
    tried: ClassVar[set[str]] = set()

    async def upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        try:
            effects = await super().upsert(rows)
        except RowsRefused:
            type(self).refused += 1
            raise
        finally:
            type(self).tried.update(row.order_id for row in rows)
        type(self).refused += Effect.SUPPRESSED in effects
        return effects


@pytest.fixture
def counting() -> type[Counting]:
    return type("Counting", (Counting,), {"tried": set()})


async def has_tried(counting: type[Counting], times: int) -> None:
    """Wait for so many more refusals."""
    before = counting.refused
    await until(lambda: counting.refused >= before + times, within=30)


async def finished_with_evidence(scene: Scene, counting: type[Counting], *refused: str) -> None:
    """Store one more order once these were tried: whichever is the last in its batch, another is stored after it."""
    await until(lambda: counting.tried.issuperset(refused), within=30)
    await scene.enqueue("later")
    await scene.finished(within=30)


def dead(worker: RunningWorker) -> float:
    return worker.metric("ingest_orders_total", outcome="dead")


# -- the table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("how", "count"), [*((how, len(ORDERS)) for how in BROKEN), (next(iter(BROKEN)), 1)])
async def test_a_table_that_takes_no_row_is_waited_for_and_no_order_is_blamed(
    scene: Scene, counting: type[Counting], how: str, count: int
) -> None:
    breaking, repairing = BROKEN[how]
    await scene.sql(breaking)
    await scene.enqueue(*ORDERS[:count])

    with capture_logs() as logs:
        async with scene.worker(classes=Classes(store=counting)) as worker:
            await has_tried(counting, 20 if count > 1 else 3)
            assert (await scene.dead(), await scene.stored()) == ([], 0)
            told = [line for line in logs if line["event"] == "rows_refused"]
            await scene.sql(repairing)

            await scene.finished(within=10)

            assert (dead(worker), worker.metric("ingest_orders_total", outcome="retried")) == (0, 0)
    assert [line["log_level"] for line in told] == ["error"] * len(told)
    assert 1 <= len(told) <= 3
    rows = await scene.rows()
    assert_right(rows, ORDERS[:count])
    assert {row["attempts"] for row in rows.values()} == {1}


# -- a row --------------------------------------------------------------------------------------------------------


async def test_that_an_order_is_unchanged_is_no_evidence_against_another(
    scene: Scene, counting: type[Counting]
) -> None:
    async with scene.worker(classes=Classes(store=counting)) as worker:
        await scene.enqueue("old")
        await scene.finished()
        # Triggers of inserts and updates do not fire for unchanged rows.
        await scene.sql(BROKEN["a trigger at the commit"][0])
        await scene.enqueue("new")
        await has_tried(counting, 1)

        await scene.enqueue("old")
        await until(lambda: worker.metric("ingest_orders_total", outcome="unchanged") == 1)
        await has_tried(counting, 2)

        assert dead(worker) == 0
        await scene.sql(BROKEN["a trigger at the commit"][1])
        await scene.finished(within=10)


@pytest.mark.parametrize(
    ("mistake", "told"),
    [
        ("PERFORM FROM gone; RETURN new;", 'PostgreSQL reports: relation "gone" does not exist'),
        ("", "control reached end of trigger procedure without RETURN (2F005)"),
    ],
)
async def test_an_order_for_which_a_function_makes_a_mistake_is_dead_and_all_others_are_stored(
    scene: Scene, counting: type[Counting], mistake: str, told: str
) -> None:
    await scene.sql(
        "CREATE FUNCTION mistaken() RETURNS trigger LANGUAGE plpgsql AS $$"
        f" BEGIN IF new.order_id !~ '^bad' THEN RETURN new; END IF; {mistake} END $$"
    )
    await scene.sql(
        "CREATE TRIGGER mistaken BEFORE INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION mistaken()"
    )
    await scene.enqueue(*ORDERS[:20], "bad", *ORDERS[20:])

    async with scene.worker(classes=Classes(store=counting)):
        await finished_with_evidence(scene, counting, "bad")

    [dead] = await scene.dead()
    assert (dead["order_id"], dead["reason"], dead["error"]) == ("bad", "unstorable", told)
    assert_right(await scene.rows(), [*ORDERS, "later"])


# -- a row that a trigger suppresses --------------------------------------------------------------------------------


async def suppress(scene: Scene, event: str, condition: str) -> None:
    """Let a trigger suppress some rows."""
    await scene.sql(
        f"CREATE TRIGGER suppresses BEFORE {event} ON orders FOR EACH ROW WHEN ({condition}) EXECUTE FUNCTION suppress()"
    )


async def dead_letters(scene: Scene) -> list[tuple[str, str, str]]:
    return sorted((letter["order_id"], letter["reason"], letter["error"]) for letter in await scene.dead())


async def test_orders_that_a_trigger_suppresses_are_dead_and_all_others_are_stored(
    scene: Scene, counting: type[Counting]
) -> None:
    await suppress(scene, "INSERT", "new.order_id ~ '^bad'")
    await scene.enqueue(*ORDERS[:20], "bad-1", *ORDERS[20:], "bad-2")

    async with scene.worker(classes=Classes(store=counting)) as worker:
        await finished_with_evidence(scene, counting, "bad-1", "bad-2")
        counted = [worker.metric("ingest_orders_total", outcome=outcome) for outcome in ("stored", "unchanged", "dead")]

    assert await dead_letters(scene) == [(name, "unstorable", SUPPRESSED) for name in ("bad-1", "bad-2")]
    assert_right(await scene.rows(), [*ORDERS, "later"])
    assert counted == [len(ORDERS) + 1, 0, 2]
