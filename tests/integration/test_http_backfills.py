"""Backfills over HTTP: started, listed, shown, cancelled and resumed, and recorded in the audit log. Workers run them."""

import asyncio
import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from typing import Any

import pytest
from http_api import Api, Key, running_api
from integration.scene import Scene

OPERATOR = Key("operator")
LIST = json.dumps({"url": "http://shop.example/orders?since={since}"})
SINCE = {"since": "2026-10-01T00:00:00Z"}


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with running_api(scene.redis_url, scene.dsn, scene.queue, OPERATOR, order_list=LIST) as api:
        yield api


async def audited(scene: Scene) -> list[tuple[Any, ...]]:
    rows = await scene.sql("SELECT phase, actor, action, selection, count FROM audit_log ORDER BY id")
    return [(*tuple(row)[:3], json.loads(row["selection"]), row["count"]) for row in rows]


async def test_a_backfill_is_started_shown_and_cancelled(scene: Scene, api: Api) -> None:
    status, started = await api.post("/v1/backfills", json={**SINCE, "until": "2026-11-01T01:00:00+01:00", "rate": 5})
    second = await api.post("/v1/backfills", json=SINCE)
    shown = await api.get(f"/v1/backfills/{started['id']}")
    cancelled = await api.call("DELETE", f"/v1/backfills/{started['id']}")
    again = await api.call("DELETE", f"/v1/backfills/{started['id']}")

    assert (status, started["state"], started["requested_by"]) == (202, "waiting", "operator")
    assert (started["since"], started["until"], started["rate"]) == ("2026-10-01T00:00:00Z", "2026-11-01T00:00:00Z", 5)
    assert (second[0], second[1]["code"], second[1]["id"]) == (409, "unfinished_backfill", started["id"])
    assert shown == (200, started)
    assert (cancelled[0], cancelled[1]["state"]) == (200, "cancelled")
    assert (again[0], again[1]["code"]) == (409, "backfill_ended")
    period = {
        "job": started["id"],
        "since": "2026-10-01T00:00:00+00:00",
        "until": "2026-11-01T00:00:00+00:00",
        "rate": 5,
        "dry_run": False,
    }
    assert await audited(scene) == [
        ("begun", "operator", "backfills.start", period, None),
        ("begun", "operator", "backfills.cancel", {"id": started["id"]}, None),
        ("failed", "operator", "backfills.start", period, 0),
        ("done", "operator", "backfills.cancel", {"id": started["id"]}, 1),
    ]


async def test_backfills_are_listed_in_pages_the_newest_first(api: Api) -> None:
    ids = []
    for _ in range(5):
        _, started = await api.post("/v1/backfills", json=SINCE)
        await api.call("DELETE", f"/v1/backfills/{started['id']}")
        ids.append(started["id"])

    pages = await api.pages("/v1/backfills?limit=2", "backfills")

    assert [[each["id"] for each in page] for page in pages] == [ids[:2:-1], ids[2:0:-1], ids[:1]]


async def test_a_cancelled_dry_run_is_resumed_unless_another_backfill_is_unfinished(scene: Scene, api: Api) -> None:
    _, started = await api.post("/v1/backfills", json={**SINCE, "dry_run": True})
    path = f"/v1/backfills/{started['id']}/resume"
    await api.call("DELETE", f"/v1/backfills/{started['id']}")
    _, other = await api.post("/v1/backfills", json=SINCE)

    refused = await api.post(path)
    await api.call("DELETE", f"/v1/backfills/{other['id']}")
    resumed = await api.post(path)
    waiting = await api.post(path)

    assert (refused[0], refused[1]["code"], refused[1]["id"]) == (409, "unfinished_backfill", other["id"])
    assert resumed == (202, started)
    assert (started["state"], started["dry_run"], started["enqueued"]) == ("waiting", True, 0)
    assert waiting == resumed
    resumes = [row for row in await audited(scene) if row[2] == "backfills.resume"]
    selection = {"id": started["id"]}
    assert resumes == [
        (phase, "operator", "backfills.resume", selection, count)
        for phase, count in (("begun", None), ("done", 0), ("begun", None), ("done", 1), ("begun", None), ("done", 1))
    ]


async def test_a_running_backfill_and_a_done_one_are_not_resumed(scene: Scene, api: Api) -> None:
    _, started = await api.post("/v1/backfills", json=SINCE)
    path = f"/v1/backfills/{started['id']}/resume"

    await scene.sql("UPDATE jobs SET leased_until = clock_timestamp() + interval '1 hour'")
    running = await api.post(path)
    await scene.sql("UPDATE jobs SET state = 'done', leased_until = NULL")
    done = await api.post(path)

    assert (running[0], running[1]["code"], running[1]["id"]) == (409, "unfinished_backfill", started["id"])
    assert (done[0], done[1]["code"]) == (409, "backfill_ended")


async def test_of_concurrent_requests_one_starts_a_backfill(api: Api) -> None:
    answers = await asyncio.gather(*(api.post("/v1/backfills", json=SINCE) for _ in range(8)))

    assert sorted(status for status, _ in answers) == [202, *[409] * 7]


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ({}, "invalid_body"),
        ({"since": "yesterday"}, "invalid_body"),
        ({"since": "2099-01-01T00:00:00Z"}, "invalid_body"),
        ({**SINCE, "until": "2026-09-01T00:00:00Z"}, "invalid_body"),
        ({"since": "0001-01-01T00:00:00+14:00"}, "invalid_body"),
        ({"since": "0001-01-01T00:00:00Z"}, "invalid_body"),
        ({**SINCE, "rate": 0}, "invalid_body"),
        ({**SINCE, "dry_run": "yes"}, "invalid_body"),
        ({**SINCE, "everything": True}, "invalid_body"),
    ],
)
async def test_an_invalid_request_starts_nothing(api: Api, body: dict[str, Any], problem: str) -> None:
    status, found = await api.post("/v1/backfills", json=body)

    assert (status, found["code"]) == (422, problem)
    assert (await api.get("/v1/backfills"))[1]["backfills"] == []


async def test_a_period_ends_now_at_the_latest(api: Api) -> None:
    before = datetime.now(UTC)

    status, started = await api.post("/v1/backfills", json={**SINCE, "until": "9999-12-31T23:59:59Z"})

    assert status == 202
    assert before <= datetime.fromisoformat(started["until"]) <= datetime.now(UTC)


async def test_unknown_backfills_and_cursors_are_problems(api: Api) -> None:
    for name in ("1", "a", "-1", "9" * 18, "9" * 30, "%00"):
        assert (await api.get(f"/v1/backfills/{name}"))[0] == 404
        assert (await api.call("DELETE", f"/v1/backfills/{name}"))[0] == 404
        assert (await api.post(f"/v1/backfills/{name}/resume"))[0] == 404
    for cursor in ("a", "MQ", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5OQ"):
        status, _ = await api.get(f"/v1/backfills?cursor={cursor}")
        assert status == (200 if cursor == "MQ" else 422)


async def test_a_source_without_a_list_has_no_backfills(scene: Scene) -> None:
    async with running_api(scene.redis_url, scene.dsn, scene.queue, OPERATOR) as api:
        started = await api.post("/v1/backfills", json=SINCE)
        resumed = await api.post("/v1/backfills/1/resume")

    assert [(status, problem["code"]) for status, problem in (started, resumed)] == 2 * [(409, "no_list")]
