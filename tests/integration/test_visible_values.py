"""The same key sees the same over HTTP and in the console: personal values need the scope `personal`."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import ClientSession, CookieJar
from dead_letter_entries import dead_fields
from http_api import Api, running_api
from integration.scene import Scene
from shipped import as_admin
from surfaces import pages, routes

from ingest.api.admission.access import KeyAccess
from ingest.api.admission.rate_limit import SharedBuckets
from ingest.domain.api_key import ApiKey, Denial, Scope, digest_of, make_key
from ingest.domain.operating.backfill import BackfillRequest
from ingest.domain.operating.jobs import JobKind, JobProgress, JobRequest, JobState
from ingest.domain.orders.order_filter import OrderFilter
from ingest.operations.declared import DECLARED, Sees
from ingest.operations.jobs import start
from ingest.operations.jobs.orders import preview_request
from ingest.store.connections.pool import Pool
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs
from ingest.telemetry.shared_metrics import Counter

PERSONAL = (
    *("customer-17850", "attribute-ada", "document-ada", "field-ada", "pushed-ada"),
    *("before-ada", "after-ada", "wanted-ada"),
)
SCOPES = {
    "reader": frozenset({Scope.READ}),
    "operator": frozenset({Scope.READ, Scope.OPERATE}),
    "support": frozenset({Scope.READ, Scope.PERSONAL}),
    "lead": frozenset({Scope.READ, Scope.OPERATE, Scope.PERSONAL}),
    "eraser": frozenset({Scope.READ, Scope.ERASE}),
    "shop": frozenset({Scope.READ, Scope.ENQUEUE, Scope.PUSH}),
}
TEXTS = {name: make_key(name.ljust(16).encode()[:16]) for name in SCOPES}
DEAD = "1700000000000-0"
PREVIEW = {
    "count": 1,
    "fetched": 1,
    "changed": 1,
    "fields": [
        {
            "field": "customer_id",
            "orders": 1,
            "examples": [{"order_id": "1", "before": "before-ada", "after": "after-ada"}],
        }
    ],
    "failures": [],
}
STORE = (
    "INSERT INTO orders (source, order_id, status, currency, placed_at, line_count, total, lines, version, fetched_at, attempts,"
    " enqueued_at, ingested_at, customer_id, attributes, document)"
    " SELECT '', '1', 'placed', 'EUR', t, 0, 0, '[]', t, t, 1, t, t, 'customer-17850',"
    """ '{"channel": "attribute-ada", "nothing": null}', '{"name": "document-ada"}'"""
    " FROM (SELECT timestamptz '2020-01-01' AS t) AS t"
)
ORDER = {"customer-17850", "attribute-ada"}
FIELDS = {"pushed-ada", "field-ada"}
BEFORE, AFTER, WANTED = "before-ada", "after-ada", "wanted-ada"
# Each operation that returns data: its path over HTTP, its path in the console, and the personal values that both return.
SURFACES: dict[str, tuple[str | None, str | None, set[str]]] = {
    "orders.list": ("/orders", "/orders", {"customer-17850"}),
    "orders.show": ("/orders/1", "/orders/show?id=1", ORDER),
    "orders.history": ("/orders/1/history", None, set()),
    "orders.read": (None, "/orders/document?id=1", {"document-ada"}),
    "sources.list": ("/sources", "/sources/show", set()),
    "queue.show": ("/queue", None, set()),
    "queue.consumers": ("/queue/consumers", None, set()),
    "retries.list": ("/retries", "/retries", set()),
    "retries.groups": ("/retries/groups", None, set()),
    "dead_letters.list": ("/dead-letters", "/dead-letters", set()),
    "dead_letters.groups": ("/dead-letters/groups", None, set()),
    "dead_letters.read": (f"/dead-letters/{DEAD}", f"/dead-letters/show?id={DEAD}", FIELDS),
    "dead_letters.export": ("/dead-letters/export", "/dead-letters/export", FIELDS),
    "controls.show": ("/controls", None, set()),
    "workers.list": ("/workers", "/workers", set()),
    "jobs.list": ("/jobs", "/jobs", {WANTED}),
    "jobs.show": ("/jobs/1", "/jobs/show?id=1", {BEFORE, AFTER, WANTED}),
    "jobs.download": ("/jobs/2/output", "/jobs/output?id=2", FIELDS),
    "backfills.list": ("/backfills", "/sources/backfills", set()),
    "backfills.show": ("/backfills/3", None, set()),
    "audit.list": ("/audit", "/audit", {WANTED}),
    "settings.show": (None, "/settings", set()),
}
# Their table in the console has no column for the selection.
WITHOUT_VALUES = ("jobs.list", "/console")
# Each change that returns data: its path over HTTP and its body. The console redirects to the page of the job.
ORDERS = {"customer_id": WANTED, "attributes": {"channel": WANTED}}
CHANGES: dict[str, tuple[str, Any]] = {
    "orders.preview": ("/jobs", {"kind": "orders.preview", "orders": ORDERS}),
    "jobs.start": ("/jobs", {"kind": "orders.enqueue", "orders": ORDERS}),
    "jobs.cancel": ("/jobs/4/cancel", None),
    "jobs.resume": ("/jobs/4/resume", None),
}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    """An API with a stored order, a dead letter, a preview and an audit log that contain personal values."""
    await scene.sql(STORE)
    fields = dead_fields("2", document='{"name": "pushed-ada"}', customer="field-ada", origin="till")
    await scene.redis.xadd(scene.keys.dead, fields, DEAD)  # type: ignore[arg-type]
    retry = ["order_id", "3", "customer", "field-ada", "document", '{"name": "pushed-ada"}', "origin", "till"]
    await scene.redis.hset(scene.keys.retry_entries, "1-0", msgspec.msgpack.encode(retry))  # type: ignore[arg-type]
    await scene.redis.zadd(scene.keys.retry, {"1-0": 4e12})
    async with Pool.open(as_admin(scene.dsn), size=1) as pool:
        jobs = Jobs(pool, "")
        wanted = preview_request(OrderFilter(customer_id="wanted-ada", attributes=(("channel", "wanted-ada"),)))
        await start(jobs, wanted, "ada")
        held = await jobs.take(1, "w")
        assert held is not None
        await jobs.end(held, JobState.DONE, JobProgress(), result=PREVIEW, order_ids=["1"])
        await start(jobs, JobRequest(JobKind.EXPORT, {"format": "jsonl"}), "ada", "w")
        export = await jobs.get(2)
        assert export is not None
        await JobOutput(pool, "").add(export, 0, '{"customer": "field-ada", "document": "pushed-ada"}\n', JobProgress())
        await jobs.end(export, JobState.DONE, JobProgress())
        moment = datetime(2020, 1, 1, tzinfo=UTC)
        await start(jobs, BackfillRequest(moment, moment, None, dry_run=True).as_job(), "ada")
    keys = [ApiKey(name, digest_of(TEXTS[name]), scopes) for name, scopes in SCOPES.items()]
    async with running_api(scene.redis_url, scene.dsn, scene.queue, access_of(*keys), keep_document="on") as api:
        yield api


def access_of(*keys: ApiKey) -> KeyAccess:
    cells = memoryview(bytearray(8 * len(Denial))).cast("d")
    denied = {reason.value: Counter(cells, at) for at, reason in enumerate(Denial)}
    return KeyAccess(keys, SharedBuckets(), denied)


@asynccontextmanager
async def logged_in(api: Api, name: str) -> AsyncIterator[ClientSession]:
    """A browser with a session of the console."""
    async with ClientSession(cookie_jar=CookieJar(unsafe=True)) as http:
        async with http.post(f"{api.url}/console/login", data={"key": TEXTS[name]}, headers=SAME_ORIGIN) as response:
            assert response.status == 200
        yield http


async def seen(api: Api, name: str, http: ClientSession, operation: str) -> dict[str, tuple[int, set[str]]]:
    """The status and the personal values that a key gets on each surface of an operation."""
    found = {}
    for surface, path in zip(("/v1", "/console"), SURFACES[operation], strict=False):
        if path is not None:
            headers = {"X-API-Key": TEXTS[name]} if surface == "/v1" else {}
            async with http.get(f"{api.url}{surface}{path}", headers=headers) as response:
                found[surface] = (response.status, personal_in(await response.text()))
    return found


def personal_in(text: str) -> set[str]:
    return {value for value in PERSONAL if value in text}


@pytest.mark.parametrize("name", SCOPES)
async def test_a_key_sees_the_same_over_http_and_in_the_console(api: Api, name: str) -> None:
    async with logged_in(api, name) as http:
        found = {operation: await seen(api, name, http, operation) for operation in SURFACES}

    expected: dict[str, dict[str, tuple[int, set[str]]]] = {}
    for operation, (_, _, values) in SURFACES.items():
        is_permitted = set(DECLARED[operation].scopes) <= SCOPES[name]
        for surface in found[operation]:
            shows = Scope.PERSONAL in SCOPES[name] and (operation, surface) != WITHOUT_VALUES
            expected.setdefault(operation, {})[surface] = (200 if is_permitted else 403, values if shows else set())
    assert found == expected


@pytest.mark.parametrize("name", ["operator", "lead"])
async def test_a_change_returns_personal_values_only_to_a_key_that_may_see_them(api: Api, name: str) -> None:
    found = {}
    for operation, (path, body) in CHANGES.items():
        headers = {"X-API-Key": TEXTS[name]}
        async with api.http.post(f"{api.url}/v1{path}", json=body, headers=headers) as response:
            found[operation] = (response.status // 100, personal_in(await response.text()))

    assert found == dict.fromkeys(CHANGES, (2, {WANTED} if Scope.PERSONAL in SCOPES[name] else set()))


def test_each_operation_that_returns_data_is_compared() -> None:
    masked = {name for name, each in DECLARED.items() if each.sees is not Sees.STATES}
    reading = {name for name, each in DECLARED.items() if each.scope is Scope.READ}

    # The result of a preview is shown with its job.
    assert SURFACES.keys() | CHANGES.keys() == (reading | masked) - {"console", "jobs.read"}


async def permitted(api: Api, name: str) -> dict[str, dict[str, set[bool]]]:
    """Whether a key may use the routes and the pages of each operation."""
    found: dict[str, dict[str, set[bool]]] = {}
    headers = {"X-API-Key": TEXTS[name]}
    async with logged_in(api, name) as http:
        async with http.get(f"{api.url}/console/") as response:
            token = re.search('name="token" value="([^"]+)"', await response.text())
        assert token is not None
        for route in routes(""):
            if route.operation is not None:
                url = api.url + route.path.format(order_id="none", entry=DEAD, job=1, backfill=1)
                async with api.http.request(route.method, url, json={}, headers=headers) as response:
                    denied = response.status == 403 and (await response.json())["code"] == "missing_scope"
                    found.setdefault(route.operation, {}).setdefault("http", set()).add(not denied)
        for page in pages():
            if page.path != "/logout":
                data = (
                    {"token": token[1], "id": "99", "level": "none", "target": "none"}
                    if page.method == "POST"
                    else None
                )
                url = f"{api.url}/console{page.path}?id=99"
                async with http.request(page.method, url, data=data, headers=SAME_ORIGIN) as response:
                    denied = response.status == 403 and "scope" in await response.text()
                    found.setdefault(page.operation, {}).setdefault("console", set()).add(not denied)
    return found


@pytest.mark.parametrize("name", SCOPES)
async def test_a_key_may_use_the_same_operations_over_http_and_in_the_console(api: Api, name: str) -> None:
    found = await permitted(api, name)

    expected = {operation: set(DECLARED[operation].scopes) <= SCOPES[name] for operation in found}
    assert found == {
        operation: {each: {expected[operation]} for each in surfaces} for operation, surfaces in found.items()
    }
    assert len(found) == len(DECLARED) - 1


async def shown(api: Api, name: str, path: str) -> Any:
    async with api.http.get(f"{api.url}{path}", headers={"X-API-Key": TEXTS[name]}) as response:
        return await response.json()


async def test_masked_values_keep_their_form(api: Api) -> None:
    order, entry, job = [
        await shown(api, "reader", f"/v1{SURFACES[operation][0]}")
        for operation in ("orders.show", "dead_letters.read", "jobs.show")
    ]

    assert order["order"]["customer_id"] == "cu…"
    assert order["order"]["attributes"] == {"channel": "at…", "nothing": None}
    assert entry["fields"] == {"document": '{"…', "customer": "fi…", "origin": "till"}
    assert job["selection"]["customer_id"] == "wa…"
    assert job["selection"]["attributes"] == [["channel", "wa…"]]
    assert job["result"]["fields"][0]["examples"] == [{"order_id": "1", "before": "be…", "after": "af…"}]


@pytest.mark.parametrize("path", ["sources/tune", "sources/pause", "workers/drain"])
async def test_a_mistake_in_a_form_is_no_outage(api: Api, scene: Scene, path: str) -> None:
    async with scene.consumer("web1-1f0c22ab-0") as worker, logged_in(api, "operator") as http:
        await worker.heartbeat(60.0)
        async with http.get(f"{api.url}/console/") as response:
            token = re.search('name="token" value="([^"]+)"', await response.text())
        assert token is not None
        fields = {"token": token[1], "reason": "x" * 201, "target": "web1"}
        async with http.post(f"{api.url}/console/{path}", data=fields, headers=SAME_ORIGIN) as response:
            status, page = response.status, await response.text()

    assert (status, "cannot be used" in page) == (422, False)


async def test_a_limited_key_sees_no_name_of_another_source(scene: Scene, tmp_path: Path) -> None:
    shared = 'upstream = { url = "https://erp.example/{order_id}", quota = "erp", rate = 10 }'
    (tmp_path / "sources.toml").write_text("".join(f"[sources.{name}]\n{shared}\n" for name in ("mine", "elsewhere")))
    limited = ApiKey("reader", digest_of(TEXTS["reader"]), frozenset(Scope), sources=frozenset({"mine"}))
    everyone = ApiKey("support", digest_of(TEXTS["support"]), frozenset(Scope))
    settings = {"sources": str(tmp_path / "sources.toml")}
    requests: list[tuple[str, str, Any]] = [
        ("POST", "/v1/sources/mine/tune", {"rate": 2}),
        ("POST", "/v1/pause", {}),
        ("GET", "/v1/sources/other/queue", None),
        ("GET", "/v1/workers", None),
        ("POST", "/v1/workers/log-level", {"level": "debug"}),
        ("GET", "/v1/audit", None),
        ("GET", "/console/audit", None),
        ("GET", "/console/workers", None),
    ]
    async with running_api(scene.redis_url, scene.dsn, scene.queue, access_of(limited, everyone), **settings) as api:
        async with api.http.post(
            f"{api.url}/v1/sources/mine/tune", json={"rate": 5}, headers={"X-API-Key": TEXTS["support"]}
        ) as response:
            assert response.status == 200
        async with logged_in(api, "reader") as http:
            found = {}
            for method, path, body in requests:
                headers = {"X-API-Key": TEXTS["reader"]}
                async with http.request(method, f"{api.url}{path}", json=body, headers=headers) as response:
                    found[path] = (response.status, await response.text())

    assert {path: status for path, (status, _) in found.items()} == {
        "/v1/sources/mine/tune": 403,
        "/v1/pause": 409,
        "/v1/sources/other/queue": 403,
        "/v1/workers": 200,
        "/v1/workers/log-level": 403,
        "/v1/audit": 200,
        "/console/audit": 200,
        "/console/workers": 200,
    }
    assert [path for path, (_, text) in found.items() if "elsewhere" in text] == []
