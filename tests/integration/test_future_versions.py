"""An `updated_at` in the future does not keep later documents out."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from integration.scene import Scene, document
from support import Cli

from ingest.operations.backends import Backends
from ingest.operations.rebuilding.refetch import refetch

FAR = "2999-01-01T00:00:00Z"


async def store(scene: Scene, status: str, updated_at: str | None) -> None:
    scene.api.put_order("X", document("X", status=status, updated_at=updated_at))
    await scene.enqueue("X")
    await scene.finished()


async def test_a_time_far_in_the_future_is_no_version_and_is_counted(scene: Scene, cli: Cli) -> None:
    async with scene.worker() as worker:
        await store(scene, "placed", FAR)
        row = (await scene.rows())["X"]
        counted = worker.metric("ingest_versions_ahead_total")
        shown = await asyncio.to_thread(cli.run, "order", "show", "X")
        await store(scene, "shipped", (datetime.now(UTC) + timedelta(hours=1)).isoformat())

    assert (row["version"], row["updated_at"].year, counted) == (row["fetched_at"], 2999, 1)
    assert "more than a day ahead of the clock" in " ".join(shown.stdout.split())
    assert (await scene.rows())["X"]["status"] == "shipped"


@pytest.mark.parametrize("hours", [1, 23])
async def test_a_time_that_is_ahead_by_less_than_a_day_is_the_version(scene: Scene, hours: int) -> None:
    ahead = datetime.now(UTC) + timedelta(hours=hours)

    async with scene.worker():
        await store(scene, "placed", ahead.isoformat())
        await store(scene, "older", datetime.now(UTC).isoformat())

    row = (await scene.rows())["X"]
    assert (row["version"], row["status"]) == (ahead, "placed")


async def test_an_order_is_fetched_again_and_stored_whatever_its_version(scene: Scene) -> None:
    async with scene.worker():
        await store(scene, "placed", None)
        # As a release stored it that took any time for a version.
        await scene.sql("UPDATE orders SET version = '2999-01-01Z', updated_at = '2999-01-01Z'")
        await store(scene, "ignored", datetime.now(UTC).isoformat())
        assert (await scene.rows())["X"]["status"] == "placed"

        stored = await refetch(Backends(scene.redis_url, scene.dsn, scene.queue), ["X", "Y"], "cli:test")
        await scene.finished()

    rows = await scene.rows()
    assert stored == 1
    assert {order_id: row["status"] for order_id, row in rows.items()} == {"X": "ignored", "Y": rows["Y"]["status"]}
    [begun, done] = await scene.sql("SELECT phase, actor, action, count FROM audit_log ORDER BY id")
    assert (begun["phase"], done["phase"], done["action"], done["count"]) == ("begun", "done", "orders.refetch", 2)
