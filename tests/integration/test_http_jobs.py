"""Jobs, groups and exports over HTTP. A process of the HTTP API runs the jobs."""

import csv
import io
import json
from collections.abc import AsyncIterator

import pytest
from dead_letter_entries import dead_fields
from http_api import Api, Key, running_api
from integration.scene import Scene
from support import eventually

from ingest.queue.layout.keys import Keys

OPERATOR = Key("operator")


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with running_api(scene.redis_url, scene.dsn, scene.queue, OPERATOR) as api:
        yield api


async def add(scene: Scene, count: int, **fields: object) -> None:
    for number in range(count):
        await scene.redis.xadd(Keys.of(scene.queue).dead, dead_fields(f"{fields['error']} {number}", **fields))  # type: ignore[arg-type]


async def test_a_job_is_run_by_the_process_and_shown_with_its_progress(scene: Scene, api: Api) -> None:
    await add(scene, 120, error="HTTP 404")
    await add(scene, 3, error="HTTP 410")
    body = {"kind": "dead_letters.replay", "selection": {"shape": "HTTP 404"}}

    status, started = await api.post("/v1/jobs", json=body)

    assert (status, started["state"], started["requested_by"]) == (202, "waiting", "operator")
    path = f"/v1/jobs/{started['id']}"

    async def has_ended() -> bool:
        return (await api.get(path))[1]["state"] == "done"

    await eventually(has_ended)
    _, ended = await api.get(path)
    assert (ended["done"], ended["gone"], ended["examined"]) == (120, 0, 123)
    assert await scene.redis.xlen(Keys.of(scene.queue).express) == 120
    assert [job["id"] for job in (await api.get("/v1/jobs"))[1]["jobs"]] == [ended["id"]]
    again = await api.post(f"{path}/cancel")
    assert (again[0], again[1]["code"]) == (409, "job_state")
    assert (await api.post(f"{path}/resume"))[0] == 409


async def test_a_job_whose_process_has_died_is_continued(scene: Scene, api: Api) -> None:
    await add(scene, 60, error="HTTP 404")
    selection = json.dumps({"everything": True, "newest": {scene.queue: "+"}})
    [[job]] = await scene.sql(
        "INSERT INTO jobs (kind, source, selection, requested_by, lease, holder, leased_until)"
        " VALUES ('dead_letters.replay', '', $1::text::jsonb, 'cli:me', 1, 'a dead process',"
        " clock_timestamp() + interval '1 s') RETURNING id",
        selection,
    )

    async def has_ended() -> bool:
        return (await api.get(f"/v1/jobs/{job}"))[1]["state"] == "done"

    await eventually(has_ended)
    assert await scene.redis.xlen(Keys.of(scene.queue).express) == 60


async def test_a_job_is_cancelled_and_resumed(scene: Scene, api: Api) -> None:
    await add(scene, 60, error="HTTP 404")
    body = {"kind": "dead_letters.drop", "selection": {"everything": True}, "rate": 5}
    _, started = await api.post("/v1/jobs", json=body)
    path = f"/v1/jobs/{started['id']}"

    async def is_running() -> bool:
        return (await api.get(path))[1]["done"] > 0

    await eventually(is_running)

    assert (await api.post(f"{path}/cancel"))[1]["state"] == "cancelled"
    status, resumed = await api.post(f"{path}/resume")
    assert (status, resumed["state"]) == (202, "waiting")
    assert (await api.post(f"{path}/cancel"))[1]["state"] == "cancelled"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"kind": "dead_letters.replay", "selection": {}}, 422),
        ({"kind": "orders.remap", "selection": {"everything": True}}, 422),
        ({"kind": "retries.run_now", "selection": {"text": "x" * 501}}, 422),
        ({"kind": "retries.run_now", "selection": {"everything": True}, "rate": 0}, 422),
    ],
)
async def test_an_invalid_job_is_rejected(api: Api, body: dict[str, object], status: int) -> None:
    assert (await api.post("/v1/jobs", json=body))[0] == status
    assert (await api.get("/v1/jobs"))[1]["jobs"] == []
    assert (await api.get("/v1/jobs/999"))[0] == 404


async def test_dead_letters_are_grouped_filtered_and_downloaded(scene: Scene, api: Api) -> None:
    await add(scene, 3, error="order 1 is unknown", reason="rejected", origin="api")
    await add(scene, 2, error="order 22 is unknown", reason="rejected", origin="webhook:a")
    await add(scene, 1, error="HTTP 404", tenant="=1+1")

    _, groups = await api.get("/v1/dead-letters/groups")
    _, listed = await api.get("/v1/dead-letters?shape=order%205%20is%20unknown&attribute=origin%3Dapi")
    _, tenants = await api.get("/v1/dead-letters?attribute=tenant%3D%3D1%2B1&text=404")
    async with api.http.get(f"{api.url}/v1/dead-letters/export?format=jsonl&reason=rejected") as response:
        lines = [json.loads(line) async for line in response.content]
        assert response.content_type == "application/x-ndjson"
    async with api.http.get(f"{api.url}/v1/dead-letters/export?format=csv&after={lines[3]['id']}") as response:
        rows = [*csv.reader(io.StringIO(await response.text()))]

    assert [(group["count"], group["shape"]) for group in groups["groups"]] == [
        (5, "order N is unknown"),
        (1, "HTTP 404"),
    ]
    assert (groups["examined"], groups["total"]) == (6, 6)
    assert len(listed["dead_letters"]) == 3
    assert [each["order_id"] for each in tenants["dead_letters"]] == ["HTTP 404 0"]
    assert [line["fields"]["origin"] for line in lines] == ["api"] * 3 + ["webhook:a"] * 2
    assert [row[2] for row in rows] == ["order 22 is unknown 1", "HTTP 404 0"]
    assert (await api.get("/v1/dead-letters/export?format=xml"))[0] == 422
    _, retries = await api.get("/v1/retries/groups")
    assert retries | {"age": 0} == {"groups": [], "examined": 0, "total": 0, "age": 0, "problem": ""}
