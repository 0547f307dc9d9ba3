"""The same key sees the same over HTTP and in the console: personal values need the scope `personal`."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

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
from ingest.domain.operating.jobs import JobProgress, JobState
from ingest.domain.orders.order_filter import OrderFilter
from ingest.operations.declared import DECLARED
from ingest.operations.jobs import start
from ingest.operations.jobs.orders import preview_request
from ingest.store.connections.pool import Pool
from ingest.store.jobs import Jobs
from ingest.telemetry.shared_metrics import Counter

PERSONAL = ("customer-17850", "attribute-ada", "field-ada", "pushed-ada", "before-ada", "after-ada", "wanted-ada")
SCOPES = {
    "reader": frozenset({Scope.READ}),
    "operator": frozenset({Scope.READ, Scope.OPERATE}),
    "support": frozenset({Scope.READ, Scope.PERSONAL}),
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
# The same operation over HTTP and in the console.
SURFACES = {
    "list orders": ("/v1/orders", "/console/orders"),
    "show an order": ("/v1/orders/1", "/console/orders/show?id=1"),
    "show a dead letter": (f"/v1/dead-letters/{DEAD}", f"/console/dead-letters/show?id={DEAD}"),
    "export dead letters": ("/v1/dead-letters/export", "/console/dead-letters/export"),
    "show a preview": ("/v1/jobs/1", "/console/jobs/show?id=1"),
    "download an export": ("/v1/jobs/2/output", "/console/jobs/output?id=2"),
    "list the audit log": ("/v1/audit", "/console/audit"),
}
NEEDS_PERSONAL = {"export dead letters", "download an export"}
SHOWN = {
    "list orders": {"customer-17850"},
    "show an order": {"customer-17850", "attribute-ada"},
    "show a dead letter": {"pushed-ada", "field-ada"},
    "export dead letters": {"pushed-ada", "field-ada"},
    "show a preview": {"before-ada", "after-ada", "wanted-ada"},
    "list the audit log": {"wanted-ada"},
}
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    """An API with a stored order, a dead letter, a preview and an audit log that contain personal values."""
    await scene.sql(STORE)
    fields = dead_fields("2", document='{"name": "pushed-ada"}', customer="field-ada", origin="till")
    await scene.redis.xadd(scene.keys.dead, fields, DEAD)  # type: ignore[arg-type]
    async with Pool.open(as_admin(scene.dsn), size=1) as pool:
        jobs = Jobs(pool, "")
        wanted = preview_request(OrderFilter(customer_id="wanted-ada", attributes=(("channel", "wanted-ada"),)))
        await start(jobs, wanted, "ada")
        held = await jobs.take(1, "w")
        assert held is not None
        await jobs.end(held, JobState.DONE, JobProgress(), result=PREVIEW, order_ids=["1"])
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


async def seen(api: Api, name: str, operation: str) -> dict[str, tuple[int, set[str]]]:
    """The status and the personal values that a key gets on both surfaces."""
    over_http, in_console = SURFACES[operation]
    async with logged_in(api, name) as http:
        found = {}
        for surface, path in (("http", over_http), ("console", in_console)):
            headers = {"X-API-Key": TEXTS[name]} if surface == "http" else {}
            async with http.get(f"{api.url}{path}", headers=headers) as response:
                text = await response.text()
                found[surface] = (response.status, {value for value in PERSONAL if value in text})
    return found


@pytest.mark.parametrize("operation", SURFACES)
@pytest.mark.parametrize("name", SCOPES)
async def test_a_key_sees_the_same_over_http_and_in_the_console(api: Api, name: str, operation: str) -> None:
    found = await seen(api, name, operation)

    assert found["http"] == found["console"]
    if Scope.PERSONAL not in SCOPES[name]:
        assert found["http"] == (403 if operation in NEEDS_PERSONAL else 200, set())
    elif operation != "download an export":
        assert found["http"] == (200, SHOWN[operation])


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
        await shown(api, "reader", SURFACES[operation][0])
        for operation in ("show an order", "show a dead letter", "show a preview")
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
