"""Pauses, changed limits, drains and log levels over HTTP: with a preview, audited, and by source."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from http_api import Api, Key, running_api
from integration.scene import Scene

OPERATOR = Key("operator")


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with running_api(scene.redis_url, scene.dsn, scene.queue, OPERATOR) as api:
        yield api


async def audit(scene: Scene) -> list[tuple[Any, ...]]:
    rows = await scene.sql("SELECT phase, actor, action, count FROM audit_log ORDER BY id")
    return [tuple(row) for row in rows]


async def test_a_source_is_paused_and_resumed(scene: Scene, api: Api) -> None:
    await scene.enqueue("a", "b")

    planned = await api.post("/v1/pause", json={"seconds": 600, "dry_run": True})
    before = await api.get("/v1/controls")
    paused = await api.post("/v1/pause", json={"seconds": 600, "reason": "maintenance", "hold_polls": True})
    shown = await api.get("/v1/controls")
    resumed = await api.post("/v1/resume", json={})
    again = await api.post("/v1/resume", json={})

    assert planned == (200, {"dry_run": True, "source": "", "pause": None, "waiting": 2, "pending": 0})
    assert before == (200, {"source": "", "pause": None, "limits": None})
    assert paused[0] == 200
    pause = shown[1]["pause"]
    assert (pause["by"], pause["reason"], pause["holds_polls"], pause["rejects_orders"]) == (
        "operator",
        "maintenance",
        True,
        False,
    )
    assert 0 < pause["left"] <= 600
    assert (resumed[1]["resumed"], again[1]["resumed"]) == (True, False)
    assert await audit(scene) == [
        ("begun", "operator", "pause", None),
        ("done", "operator", "pause", 1),
        ("begun", "operator", "resume", None),
        ("done", "operator", "resume", 1),
    ]


async def test_a_pause_that_rejects_orders_is_reported_with_a_time_to_try_again(scene: Scene, api: Api) -> None:
    await api.post("/v1/pause", json={"reject_orders": True, "reason": "moving"})

    status, problem = await api.post("/v1/orders", json={"order_ids": ["a"]})
    await api.post("/v1/resume", json={})

    assert (status, problem["code"]) == (503, "source_paused")
    assert problem["detail"] == "the source is paused and accepts no orders: moving"
    assert (await scene.state()).depth == 0


async def test_limits_are_changed_and_returned(api: Api) -> None:
    changed = await api.post("/v1/tune", json={"rate": 2.5})
    further = await api.post("/v1/tune", json={"concurrency": 3})
    nothing = await api.post("/v1/tune", json={})
    both = await api.post("/v1/tune", json={"rate": 1, "reset": True})
    reset = await api.post("/v1/tune", json={"reset": True})

    assert (changed[1]["limits"]["rate"], changed[1]["limits"]["concurrency"]) == (2.5, None)
    assert (further[1]["limits"]["rate"], further[1]["limits"]["concurrency"]) == (2.5, 3)
    assert [nothing[0], both[0]] == [422, 422]
    assert reset[1]["limits"] is None


async def test_workers_are_drained_by_host(scene: Scene, api: Api) -> None:
    async with scene.consumer("web1-1f0c22ab-0") as one, scene.consumer("web1-1f0c22ab-1") as two:
        await one.heartbeat(60.0)
        await two.heartbeat(60.0)

        unknown = await api.post("/v1/workers/drain", json={"target": "web2"})
        planned = await api.post("/v1/workers/drain", json={"target": "web1", "dry_run": True})
        await api.post("/v1/workers/drain", json={"target": "web1-1f0c22ab-1", "reason": "kernel"})
        status, shown = await api.get("/v1/workers")
        undone = await api.post("/v1/workers/drain", json={"target": "web1-1f0c22ab-1", "undo": True})

    assert (unknown[0], unknown[1]["code"]) == (404, "unknown_process")
    assert planned[1]["workers"] == ["web1-1f0c22ab-0", "web1-1f0c22ab-1"]
    assert status == 200
    assert [each["drained"] for each in shown["workers"]] == [False, True]
    assert [each["target"] for each in shown["drains"]] == ["web1-1f0c22ab-1"]
    assert undone[1]["workers"] == ["web1-1f0c22ab-1"]


async def test_the_log_level_is_changed_for_all_hosts_or_one(api: Api) -> None:
    await api.post("/v1/workers/log-level", json={"level": "debug", "host": "web1"})
    await api.post("/v1/workers/log-level", json={"level": "error"})
    await api.post("/v1/workers/log-level", json={"level": None})
    wrong = await api.post("/v1/workers/log-level", json={"level": "loud"})

    _, shown = await api.get("/v1/workers")

    assert wrong[0] == 422
    assert [(each["host"], each["level"]) for each in shown["log_levels"]] == [("web1", "debug")]
