"""Workers with INGEST_HISTORY record what happens to each order, on real servers."""

from collections.abc import AsyncIterator

import pytest
from integration.scene import Scene, document, ids
from structlog.testing import capture_logs
from support import eventually

from ingest.domain.deliveries.selection import Selection
from ingest.domain.orders.order_history import HistoryEntry, HistoryEvent
from ingest.lab.upstream import Behaviour
from ingest.operations.backends import Backends
from ingest.operations.failed_orders.dead_letters import replay
from ingest.operations.stored_orders.history import histories
from ingest.operations.stored_orders.orders import erase


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name, Behaviour(any_id=True)) as scene:
        yield scene


async def history(scene: Scene, order_id: str) -> list[HistoryEntry]:
    """The events of an order, the oldest first."""
    backends = Backends.of(scene.settings())
    found = await histories([backends], [order_id], 100)
    return list(found["", order_id].entries)[::-1]


def events(entries: list[HistoryEntry]) -> list[HistoryEvent]:
    return [entry.event for entry in entries]


async def test_each_attempt_is_shown_with_the_producer_and_the_replay_before_it(scene: Scene) -> None:
    good = ids(5)
    scene.api.put_order("X", document("X"))
    scene.api.behave(breaking_id="X", error_status=500)
    await scene.enqueue(*good)
    await scene.add(order_id="X", origin="webhook:shop")

    async with scene.worker(history=3600.0, max_attempts=2):
        # Evidence that the API works for other orders, so that this one is at fault.
        async def dead() -> bool:
            await scene.enqueue(*good)
            return bool(await scene.dead())

        await eventually(dead, within=30, every=0.2)
        scene.api.behave(breaking_id=None)
        await replay(Backends.of(scene.settings()), Selection(everything=True))
        await scene.finished()

        async def stored() -> list[HistoryEntry]:
            entries = await history(scene, "X")
            return entries if len(entries) == 5 else []

        entries = await eventually(stored)

    enqueued, retried, dead_lettered, replayed, inserted = entries
    assert (enqueued.event, enqueued.by) == (HistoryEvent.ENQUEUED, "webhook:shop")
    assert (retried.event, retried.attempt, retried.reason, retried.status) == (
        HistoryEvent.RETRIED,
        1,
        "http_status",
        500,
    )
    assert retried.took is not None
    assert retried.next_at is not None
    assert (dead_lettered.event, dead_lettered.attempt) == (HistoryEvent.DEAD_LETTERED, 2)
    assert (dead_lettered.reason, dead_lettered.error) == ("attempts_exhausted", "HTTP 500")
    assert replayed.event is HistoryEvent.REPLAYED
    assert (inserted.event, inserted.attempt, inserted.worker) == (HistoryEvent.INSERTED, 1, "w")
    assert inserted.took is not None
    assert inserted.version is not None


async def test_each_delivery_of_an_order_in_one_batch_is_recorded_and_an_erased_order_is_not(scene: Scene) -> None:
    backends = scene.api_backends()
    await erase(backends, ["order-2"], "me")
    await scene.enqueue("order-1", "order-2", "order-1", "order-1")

    async with scene.worker(history=3600.0):
        await scene.finished()

    recorded = [row["event"] for row in await scene.sql("SELECT event FROM order_history ORDER BY event")]
    assert recorded == ["inserted", "unchanged", "unchanged"]
    assert events(await history(scene, "order-2")) == [HistoryEvent.ERASED]

    await erase(backends, ["order-1"], "me")

    assert await scene.sql("SELECT * FROM order_history") == []


async def test_a_stopping_worker_writes_the_events_that_it_has_gathered(scene: Scene) -> None:
    await scene.add(order_id="pushed", document="{}")

    async with scene.worker(history=3600.0) as worker:
        await eventually(scene.dead)
        await worker.stop()

    [event] = await scene.sql("SELECT * FROM order_history")
    assert (event["event"], event["reason"], event["took"]) == ("dead_lettered", "invalid_order", None)


async def test_events_that_the_table_rejects_are_dropped_and_later_ones_are_recorded(scene: Scene) -> None:
    await scene.sql("ALTER TABLE order_history ADD CONSTRAINT some_only CHECK (order_id <> 'rejected')")
    await scene.add(order_id="rejected", document="{}")

    async def is_refused() -> bool:
        return any(log["event"] == "history_refused" for log in logs)

    async def recorded() -> list[str]:
        return [row["order_id"] for row in await scene.sql("SELECT order_id FROM order_history")]

    with capture_logs() as logs:
        async with scene.worker(history=3600.0):
            await eventually(is_refused, within=60)
            await scene.add(order_id="accepted", document="{}")

            assert await eventually(recorded, within=60) == ["accepted"]


async def test_without_the_setting_nothing_is_recorded(scene: Scene) -> None:
    await scene.enqueue(*ids(3))

    async with scene.worker():
        await scene.finished()

    assert await scene.sql("SELECT * FROM order_history") == []
    assert await history(scene, ids(1)[0]) == []
