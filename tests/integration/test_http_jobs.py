"""Jobs, groups and exports over HTTP. A process of the HTTP API runs the jobs."""

import csv
import gzip
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
        ({"kind": "dead_letters.export", "selection": {"ids": ["1"]}}, 422),
        ({"kind": "dead_letters.export", "selection": {"everything": True}, "format": "xml"}, 422),
        ({"kind": "dead_letters.replay", "selection": {"everything": True}, "format": "csv"}, 422),
    ],
)
async def test_an_invalid_job_is_rejected(api: Api, body: dict[str, object], status: int) -> None:
    assert (await api.post("/v1/jobs", json=body))[0] == status
    assert (await api.get("/v1/jobs"))[1]["jobs"] == []
    assert (await api.get("/v1/jobs/999"))[0] == 404
    assert (await api.get("/v1/jobs/999/output"))[0] == 404


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
    empty = {"groups": [], "examined": 0, "total": 0, "age": 0, "problem": "", "missing_partitions": []}
    assert retries | {"age": 0} == empty


async def download(api: Api, job: int) -> tuple[dict[str, str], str]:
    async with api.http.get(f"{api.url}/v1/jobs/{job}/output") as response:
        assert response.status == 200
        return dict(response.headers), await response.text()


async def test_an_export_is_run_audited_and_downloaded_until_it_expires(scene: Scene, api: Api) -> None:
    await add(scene, 450, error="HTTP 404", document="x" * 3_000)
    await add(scene, 3, error="HTTP 410")
    body = {"kind": "dead_letters.export", "selection": {"shape": "HTTP 404"}}

    exports = [(await api.post("/v1/jobs", json=body | more))[1] for more in ({}, {"format": "csv"})]

    await eventually(lambda: _are_done(api, exports))
    headers, text = await download(api, exports[0]["id"])
    assert headers["Content-Type"] == "application/x-ndjson; charset=utf-8"
    assert headers["Content-Disposition"] == f'attachment; filename="dead-letters-{exports[0]["id"]}.jsonl"'
    wanted = [f"HTTP 404 {number}" for number in range(450)]
    assert [json.loads(line)["order_id"] for line in text.splitlines()] == wanted
    headers, text = await download(api, exports[1]["id"])
    assert headers["Content-Type"] == "text/csv; charset=utf-8"
    assert [row["order_id"] for row in csv.DictReader(io.StringIO(text))] == wanted
    audited = await scene.sql("SELECT actor, count FROM audit_log WHERE action = $1 AND phase = 'done'", body["kind"])
    assert [tuple(row) for row in audited] == [("operator", 450)] * 2
    downloads = await scene.sql(
        "SELECT actor, selection->>'route' FROM audit_log WHERE action = 'jobs.download' ORDER BY id"
    )
    assert [tuple(row) for row in downloads] == [("operator", f"GET /v1/jobs/{each['id']}/output") for each in exports]

    await scene.sql("UPDATE jobs SET ended_at = ended_at - interval '8 days'")
    status, problem = await api.get(f"/v1/jobs/{exports[0]['id']}/output")
    assert (status, problem["code"]) == (410, "job_output_expired")


async def _are_done(api: Api, jobs: list[dict[str, object]]) -> bool:
    return all([(await api.get(f"/v1/jobs/{job['id']}"))[1]["state"] == "done" for job in jobs])


async def test_an_export_whose_process_has_died_is_continued_after_its_last_part(scene: Scene, api: Api) -> None:
    await add(scene, 60, error="HTTP 404")
    [(last, _)] = await scene.redis.xrange(Keys.of(scene.queue).dead, count=1)
    selection = json.dumps({"everything": True, "newest": {scene.queue: "+"}, "format": "jsonl"})
    progress = json.dumps({"done": 1, "examined": 1, "position": {scene.queue: last.decode()}})
    [[job]] = await scene.sql(
        "WITH added AS (INSERT INTO jobs (kind, source, selection, requested_by, lease, holder, leased_until)"
        " VALUES ('dead_letters.export', '', $1::text::jsonb, 'cli:me', 1, 'a dead process',"
        " clock_timestamp() + interval '1 s') RETURNING id)"
        " INSERT INTO job_output SELECT id, 0, $2::text::jsonb, $3 FROM added RETURNING job",
        selection,
        progress,
        gzip.compress(b"the first line\n"),
    )
    status, problem = await api.get(f"/v1/jobs/{job}/output")
    assert (status, problem["code"]) == (409, "job_state")

    await eventually(lambda: _are_done(api, [{"id": job}]))

    _, text = await download(api, job)
    first, *lines = text.splitlines()
    assert first == "the first line"
    assert [json.loads(line)["order_id"] for line in lines] == [f"HTTP 404 {number}" for number in range(1, 60)]
    assert (await api.get(f"/v1/jobs/{job}"))[1]["done"] == 60
