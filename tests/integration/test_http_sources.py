"""The HTTP API of several sources on a real Redis. Each source uses its own queue, and keys may be limited to some of them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from dead_letter_entries import dead_fields
from http_api import NOWHERE, Api, queued, running_api
from integration.scene import document
from redis.asyncio import Redis
from support import connected, eventually
from webhook_requests import SECRET, shopify

from ingest import Client, Forbidden, SyncClient
from ingest.api.admission.access import open_access
from ingest.api.admission.rate_limit import SharedBuckets
from ingest.domain.api_key import ApiKey, Denial, Scope, digest_of, make_key
from ingest.domain.source_name import queue_of
from ingest.lab.servers import EmbeddedServers
from ingest.operations.api_keys import add_key
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import CONTROL_CONNECTIONS, control_client
from ingest.telemetry.shared_metrics import Counter

SHOPS = ("shop-de", "shop-fr")
OF_SHOP_DE = {"X-API-Key": make_key(b"shop-de " * 2)}
OF_ALL = {"X-API-Key": make_key(b"all shop" * 2)}
STORE = (
    "INSERT INTO orders (source, order_id, status, currency, placed_at, line_count, total, lines, version, fetched_at, attempts,"
    " enqueued_at, ingested_at)"
    " SELECT $1, '1', $2, 'EUR', t, 0, 0, '[]', t, t, 1, t, t FROM (SELECT timestamptz '2020-01-01' AS t) AS t"
)

ServeSources = Callable[..., AbstractAsyncContextManager[Api]]


@pytest.fixture
def keys_file(tmp_path: Path) -> Path:
    """A key for one source, and a key for all."""
    for name, header, sources in (("of-shop-de", OF_SHOP_DE, frozenset({"shop-de"})), ("of-all", OF_ALL, None)):
        key = ApiKey(name, digest_of(header["X-API-Key"]), frozenset(Scope), sources=sources)
        add_key(tmp_path / "keys", key)
    return tmp_path / "keys"


@pytest.fixture
def serve_sources(redis_url: str, queue_name: str, tmp_path: Path, keys_file: Path) -> ServeSources:
    """Runs an API of these sources, without PostgreSQL unless a DSN is given."""

    @asynccontextmanager
    async def serve(
        names: Sequence[str] = SHOPS,
        webhook: str = "",
        dsn: str = NOWHERE,
        redis_url: str = redis_url,
        **settings: Any,
    ) -> AsyncIterator[Api]:
        file = tmp_path / "sources.toml"
        file.write_text("".join(_table(name, webhook) for name in names))
        async with (
            _access(keys_file) as access,
            running_api(redis_url, dsn, queue_name, access, sources=str(file), **settings) as api,
        ):
            yield api

    return serve


def _table(name: str, webhook: str) -> str:
    upstream = f'upstream = {{ url = "https://{name}.example/orders/{{order_id}}" }}'
    return "\n".join([f"[sources.{name}]", upstream, f"webhook = {webhook}" if webhook else "", ""])


def value_of(counter: Counter) -> float:
    return counter._cells[counter._at]


@asynccontextmanager
async def _access(file: Path) -> AsyncIterator[Any]:
    denied = {reason.value: Counter(memoryview(bytearray(8)).cast("d"), 0) for reason in Denial}
    async with open_access(file, SharedBuckets(), denied) as access:
        yield access


async def ids_of(redis: Redis, queue: str, source: str) -> list[str]:
    return [fields[b"order_id"].decode() for fields in await queued(redis, queue_of(queue, source))]


async def test_the_same_order_id_and_idempotency_key_are_independent_in_each_source(
    serve_sources: ServeSources, redis: Redis, queue_name: str
) -> None:
    async with serve_sources() as api:
        answers = [
            await api.post(
                f"/v1/sources/{name}/orders", json={"order_ids": ["1"]}, headers={**OF_ALL, "Idempotency-Key": '"k"'}
            )
            for name in (*SHOPS, *SHOPS)
        ]
        _, listed = await api.call("GET", "/v1/sources", headers=OF_ALL)

    assert answers == [(202, {"accepted": 1, "duplicates": 0})] * 4
    assert [await ids_of(redis, queue_name, name) for name in (*SHOPS, "")] == [["1"], ["1"], []]
    assert [(each["name"], each["depth"], each["dead"]) for each in listed["sources"]] == [
        ("shop-de", 1, 0),
        ("shop-fr", 1, 0),
    ]


async def test_the_backlog_limit_of_a_source_does_not_stop_another(
    serve_sources: ServeSources, redis: Redis, queue_name: str
) -> None:
    async with serve_sources(backlog_limit=1) as api:
        statuses = [
            (await api.post(f"/v1/sources/{name}/orders", json={"order_ids": [order_id]}, headers=OF_ALL))[0]
            for name, order_id in (("shop-de", "1"), ("shop-de", "2"), ("shop-fr", "2"))
        ]

    assert statuses == [202, 429, 202]
    assert [await ids_of(redis, queue_name, name) for name in SHOPS] == [["1"], ["2"]]


async def test_with_several_sources_the_plain_path_names_those_to_use_instead(
    serve_sources: ServeSources, redis: Redis, queue_name: str
) -> None:
    async with serve_sources() as api:
        status, of_all = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers=OF_ALL)
        _, of_one = await api.call("GET", "/v1/queue", headers=OF_SHOP_DE)
        _, document = await api.get("/openapi.json")

    assert (status, of_all["code"], of_all["sources"]) == (409, "several_sources", ["shop-de", "shop-fr"])
    assert of_all["detail"] == "there are several sources: use /v1/sources/{source}/orders with one of shop-de, shop-fr"
    assert of_one["sources"] == ["shop-de"]
    assert document["paths"].keys() == {
        *("/healthz", "/readyz", "/openapi.json", "/v1/sources"),
        *("/v1/audit", "/v1/workers", "/v1/workers/drain", "/v1/workers/log-level"),
        *(path for path in document["paths"] if path.startswith("/v1/sources/{source}/")),
    }
    assert [key async for key in redis.scan_iter(match=f"*{queue_name}*:stream")] == []


async def test_the_only_source_has_the_plain_path_and_its_own(
    serve_sources: ServeSources, redis: Redis, queue_name: str
) -> None:
    async with serve_sources(["shop-de"]) as api:
        plain = await api.post("/v1/orders", json={"order_ids": ["1"]}, headers=OF_SHOP_DE)
        named = await api.post("/v1/sources/shop-de/orders", json={"order_ids": ["2"]}, headers=OF_SHOP_DE)

    assert [status for status, _ in (plain, named)] == [202, 202]
    assert await ids_of(redis, queue_name, "shop-de") == ["1", "2"]


async def test_an_unknown_source_is_not_found_and_creates_no_queue(
    serve_sources: ServeSources, redis: Redis, queue_name: str
) -> None:
    async with serve_sources() as api:
        status, answer = await api.post("/v1/sources/shop-it/orders", json={"order_ids": ["1"]}, headers=OF_ALL)

    assert (status, answer["code"], answer["sources"]) == (404, "unknown_source", ["shop-de", "shop-fr"])
    # Heartbeats of the API write the counts of each minute for the sources that it serves.
    keys = [key async for key in redis.scan_iter(match=f"*{queue_name}*")]
    assert [key for key in keys if b":minutes:" not in key or b"shop-it" in key] == []


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/orders"),
        ("GET", "/orders"),
        ("GET", "/orders/1"),
        ("PUT", "/orders/1"),
        ("DELETE", "/orders/1"),
        ("GET", "/queue"),
        ("GET", "/retries"),
        ("POST", "/dead-letters/drop"),
    ],
)
async def test_a_limited_key_is_rejected_on_every_route_of_another_source(
    serve_sources: ServeSources, method: str, path: str
) -> None:
    async with serve_sources() as api:
        for name in ("shop-fr", "shop-it"):
            status, answer = await api.call(method, f"/v1/sources/{name}{path}", headers=OF_SHOP_DE, json={})
            assert (status, answer["code"], answer["source"]) == (403, "missing_source", name)
        _, listed = await api.call("GET", "/v1/sources", headers=OF_SHOP_DE)

    assert [each["name"] for each in listed["sources"]] == ["shop-de"]


async def test_a_client_of_a_source_uses_the_routes_of_the_source(
    serve_sources: ServeSources, redis: Redis, queue_name: str
) -> None:
    key = OF_SHOP_DE["X-API-Key"]
    async with serve_sources() as api:
        async with Client.connect(api.url, key=key, source="shop-de") as client:
            await client.announce("1", origin="erp")
            await client.announce_stream(["2"])
            await client.put("SO/2026/#3", document("SO/2026/#3"))
            state = await client.queue()
        with SyncClient(api.url, key=key, source="shop-fr") as other, pytest.raises(Forbidden, match="other sources"):
            await asyncio.to_thread(other.announce, "1")
    with pytest.raises(ValueError, match="not the name of a source"):
        SyncClient(api.url, key=key, source="shop/de")

    assert await ids_of(redis, queue_name, "shop-de") == ["1", "2", "SO/2026/#3"]
    assert (await queued(redis, queue_of(queue_name, "shop-de")))[0][b"origin"] == b"key:of-shop-de:erp"
    assert state["depth"] == 3
    assert await ids_of(redis, queue_name, "shop-fr") == []


async def test_the_webhook_of_a_source_enqueues_its_orders_for_this_source_alone(
    serve_sources: ServeSources, redis: Redis, queue_name: str, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text(SECRET)
    body = b'{"id": 1}'
    async with serve_sources(webhook='{ profile = "shopify", secret_files = ["secret"] }') as api:
        for name in (*SHOPS, "shop-fr"):
            status, answer = await api.post(f"/v1/webhooks/{name}", data=body, headers=shopify(body))
            assert status == 200, answer
        accepted = {source: value_of(counters["webhook"]) for source, counters in api.metrics.accepted.items()}

    assert answer == {"result": "duplicate"}
    assert [await ids_of(redis, queue_name, name) for name in (*SHOPS, "")] == [["1"], ["1"], []]
    assert (await queued(redis, queue_of(queue_name, "shop-fr")))[0][b"origin"] == b"webhook:shop-fr"
    assert accepted == {"shop-de": 1, "shop-fr": 1}


async def test_the_same_order_of_two_sources_is_shown_listed_and_erased_for_each_alone(
    serve_sources: ServeSources, dsn: str
) -> None:
    async with connected(dsn) as sql, serve_sources(dsn=dsn) as api:
        for source, status in (("shop-de", "placed"), ("shop-fr", "shipped"), ("", "unnamed")):
            await sql.execute(STORE, source, status)

        shown = [await api.call("GET", f"/v1/sources/{name}/orders/1", headers=OF_ALL) for name in SHOPS]
        _, listed = await api.call("GET", "/v1/sources/shop-fr/orders", headers=OF_ALL)
        erased, answer = await api.call("DELETE", "/v1/sources/shop-de/orders/1", headers=OF_ALL)
        after = [(await api.call("GET", f"/v1/sources/{name}/orders/1", headers=OF_ALL))[1] for name in SHOPS]

    assert [(status, found["order"]["status"]) for status, found in shown] == [(200, "placed"), (200, "shipped")]
    assert [each["order"]["status"] for each in listed["orders"]] == ["shipped"]
    assert (erased, answer["removed"]["rows"]) == (200, 1)
    assert [found["order"] is None for found in after] == [True, False]
    assert [found["erased_at"] is None for found in after] == [False, True]


async def test_fifty_sources_need_no_more_connections_to_redis_than_one(
    serve_sources: ServeSources, own_servers: EmbeddedServers
) -> None:
    names = [f"shop-{number}" for number in range(50)]
    async with control_client(own_servers.redis_url) as redis:
        connections = {}
        for count in (1, 50):
            before = (await redis.info("clients"))["connected_clients"]
            async with serve_sources(names[:count], redis_url=own_servers.redis_url) as api:
                paths = [f"/v1/sources/{names[number % count]}/orders" for number in range(100)]
                sent = await asyncio.gather(
                    *(api.post(path, json={"order_ids": ["1"]}, headers=OF_ALL) for path in paths)
                )
                await asyncio.gather(*(api.call("GET", "/v1/sources", headers=OF_ALL) for _ in range(10)))
                connections[count] = (await redis.info("clients"))["connected_clients"] - before

    assert {status for status, _ in sent} == {202}
    assert connections[50] <= connections[1] + 4
    assert connections[50] <= 2 * CONTROL_CONNECTIONS


async def test_a_limited_key_cannot_download_the_export_of_another_source(
    serve_sources: ServeSources, redis: Redis, queue_name: str, dsn: str
) -> None:
    await redis.xadd(Keys.of(queue_of(queue_name, "shop-fr")).dead, dead_fields("secret"))  # type: ignore[arg-type]
    body = {"kind": "dead_letters.export", "selection": {"everything": True}}
    async with serve_sources(dsn=dsn) as api:
        _, job = await api.post("/v1/sources/shop-fr/jobs", json=body, headers=OF_ALL)
        path = f"jobs/{job['id']}/output"

        async def is_downloaded() -> bool:
            async with api.http.get(f"{api.url}/v1/sources/shop-fr/{path}", headers=OF_ALL) as response:
                return response.status == 200 and "secret" in await response.text()

        await eventually(is_downloaded)
        of_another, _ = await api.call("GET", f"/v1/sources/shop-fr/{path}", headers=OF_SHOP_DE)
        as_own, _ = await api.call("GET", f"/v1/sources/shop-de/{path}", headers=OF_SHOP_DE)

    assert (of_another, as_own) == (403, 404)
