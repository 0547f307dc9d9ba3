"""Orders over HTTP: one order wherever it is, the stored ones page by page, and erasing one."""

import asyncio
import time
from collections.abc import AsyncIterator
from functools import partial

import asyncpg
import pytest
from http_api import NOWHERE, Api, Key, running_api
from integration.scene import Scene, document
from integration.scene import ids as order_ids
from shipped import as_api
from support import connected, eventually

from ingest.domain.deliveries.delivery import DeadReason
from ingest.operations.backends import Backends
from ingest.operations.stored_orders.order_connections import OrderConnections
from ingest.operations.stored_orders.orders import SEARCHED_ENTRIES, Orders

NO_REDIS = "redis://127.0.0.1:1/0"


@pytest.fixture
async def api(scene: Scene) -> AsyncIterator[Api]:
    async with running_api(scene.redis_url, scene.dsn, scene.queue, Key("shop")) as api:
        yield api


async def store(scene: Scene, *order_ids: str, **changed: str) -> None:
    before = await scene.stored()
    for order_id in order_ids:
        body = document(order_id)
        for name, value in changed.items():
            body = body.replace(b'"%s":null' % name.encode(), b'"%s":"%s"' % (name.encode(), value.encode()))
        await scene.add(order_id=order_id, document=body)
    async with scene.worker(keep_document="on"):
        await scene.stored_at_least(before + len(order_ids))
        await scene.finished()


async def test_a_stored_order_is_shown_as_it_was_sent_with_what_is_known_of_its_row(scene: Scene, api: Api) -> None:
    await store(scene, "A")

    status, found = await api.get("/v1/orders/A")

    assert status == 200
    assert found["order_id"] == "A"
    assert found["ingestion"] == {"state": "stored", "searched": True, "entries": []}
    order = found["order"]
    assert (order["id"], order["total"], order["currency"], order["placed_at"]) == (
        "A",
        "7.50",
        "EUR",
        "2026-01-02T03:04:05Z",
    )
    assert order["lines"] == [{"sku": "S", "quantity": 3, "unit_price": "2.50", "description": None}]
    assert "document" not in order
    assert set(found["row"]) == {"version", "fetched_at", "attempts", "enqueued_at", "ingested_at"}
    assert found["row"]["ingested_at"].endswith("Z")


async def test_an_order_is_shown_wherever_it_is(scene: Scene, api: Api) -> None:
    for order_id in ("dead", "retried", "held", "waiting"):
        await scene.enqueue(order_id)
    async with scene.consumer("w-1") as consumer:
        dead, retried, _ = await consumer.read(3, 1.0)
        await consumer.dead_letter(dead, DeadReason.NOT_FOUND, "HTTP 404")
        await consumer.reschedule(retried, 3_600.0, 2)
        found = {
            order_id: (await api.get(f"/v1/orders/{order_id}"))[1]["ingestion"]
            for order_id in ("dead", "retried", "held", "waiting")
        }

    assert {order_id: each["state"] for order_id, each in found.items()} == {
        "dead": "dead",
        "retried": "retrying",
        "held": "in_flight",
        "waiting": "queued",
    }
    assert found["dead"]["entries"][0]["reason"] == "not_found"
    assert found["held"]["entries"][0]["worker"] == "w-1"
    assert found["retried"]["entries"][0]["next_try_at"] > found["retried"]["entries"][0]["announced_at"]
    assert set(found["retried"]["entries"][0]) == {
        "state",
        "entry_id",
        "announced_at",
        "next_try_at",
        "attempt",
        "reason",
        "error",
    }


async def test_an_order_that_is_nowhere_is_not_found_and_what_is_no_id_is_refused(api: Api) -> None:
    status, problem = await api.get("/v1/orders/nobody")
    assert (status, problem["code"]) == (404, "order_not_found")

    for path in ("/v1/orders/a%20", "/v1/orders/%00", "/v1/orders/%FF", "/v1/orders/" + "a" * 129):
        assert (await api.get(path))[0] == 422
        assert (await api.call("DELETE", path))[0] == 422
    assert (await api.get("/v1/orders/a?x=1"))[1]["code"] == "unknown_parameter"


async def test_what_is_announced_is_found_at_once(api: Api) -> None:
    for number in range(20):
        assert (await api.post("/v1/orders", json={"order_ids": [f"o-{number}"]}))[0] == 202
        assert (await api.get(f"/v1/orders/o-{number}"))[1]["ingestion"]["state"] == "queued"


async def test_a_queue_that_is_too_long_to_be_searched_is_told(scene: Scene, api: Api) -> None:
    await store(scene, "A")
    await scene.enqueue("waiting", *order_ids(SEARCHED_ENTRIES))

    stored = await api.get("/v1/orders/A")
    unknown = await api.get("/v1/orders/waiting")

    assert [status for status, _ in (stored, unknown)] == [200, 200]
    for _, found in (stored, unknown):
        assert (found["ingestion"]["state"], found["ingestion"]["searched"]) == ("unknown", False)
        assert "too long" in found["ingestion"]["problem"]
    assert (stored[1]["order"]["id"], unknown[1]["order"]) == ("A", None)


async def test_without_redis_a_stored_order_is_shown_and_of_others_nothing_is_said(scene: Scene) -> None:
    await store(scene, "A")
    async with running_api(NO_REDIS, scene.dsn, scene.queue) as api:
        status, found = await api.get("/v1/orders/A")
        other, problem = await api.get("/v1/orders/B")

    assert (status, found["ingestion"]["state"], found["order"]["id"]) == (200, "unknown", "A")
    assert (other, problem["code"]) == (503, "queue_unavailable")


async def test_without_postgres_every_answer_is_503(scene: Scene) -> None:
    async with running_api(scene.redis_url, NOWHERE, scene.queue) as api:
        answers = [await api.get("/v1/orders/A"), await api.get("/v1/orders"), await api.call("DELETE", "/v1/orders/A")]

    assert [(status, problem["code"]) for status, problem in answers] == [(503, "store_unavailable")] * 3


async def test_with_a_dsn_that_cannot_be_used_an_answer_is_503(scene: Scene) -> None:
    async with running_api(scene.redis_url, f"{scene.dsn}?sslmode=sometimes", scene.queue) as api:
        status, problem = await api.get("/v1/orders/A")

    assert (status, problem["code"]) == (503, "store_unavailable")


# -- the list -----------------------------------------------------------------------------------------------------


async def test_pages_hold_all_stored_orders_once(scene: Scene, api: Api) -> None:
    await store(scene, *(f"o-{number:02}" for number in range(25)))

    found = await api.pages("/v1/orders?limit=10", "orders")

    pages = [[each["order"]["id"] for each in page] for page in found]
    assert [len(page) for page in pages] == [10, 10, 5]
    assert [order_id for page in pages for order_id in page] == [f"o-{number:02}" for number in range(25)]


async def test_orders_are_filtered(scene: Scene, api: Api) -> None:
    await store(scene, "A", customer_id="x")
    await store(scene, "B", customer_id="y", updated_at="2026-02-01T00:00:00Z")

    async def ids(query: str) -> list[str]:
        status, page = await api.get(f"/v1/orders?{query}")
        assert status == 200, page
        return [each["order"]["id"] for each in page["orders"]]

    assert await ids("customer_id=x") == ["A"]
    assert await ids("status=placed&country=Norway&currency=EUR") == ["A", "B"]
    assert await ids("country=Sweden") == []
    assert await ids("placed_from=2026-01-02T03:04:05Z&placed_to=2026-01-02T03:04:06Z") == ["A", "B"]
    assert await ids("placed_to=2026-01-02T03:04:05Z") == []
    assert await ids("updated_from=2026-01-15") == ["B"]
    assert await ids("customer_id=x'%20OR%20true--") == []


@pytest.mark.parametrize(
    "query",
    [
        "limit=0",
        "limit=501",
        "limit=x",
        "limit=1&limit=2",
        "cursor=x",
        "cursor=%21",
        "cursor=%C3%A9",
        "cursor=MQ",
        "cursor=ImEgYiAi",
        "placed_from=soon",
        "placed_from=0001-01-01T00:00:00%2B14:00",
        "status=%00",
        f"status={'x' * 300}",
        "order=desc",
    ],
)
async def test_a_query_that_is_not_understood_is_refused_by_name(api: Api, query: str) -> None:
    status, problem = await api.get(f"/v1/orders?{query}")

    assert (status, problem["code"] in {"invalid_parameter", "unknown_parameter"}) == (422, True)


# -- erasing ------------------------------------------------------------------------------------------------------


async def test_orders_are_listed_by_the_time_of_their_last_change_over_pages(scene: Scene, api: Api) -> None:
    await store(scene, "B1", "A2", "A1")
    await scene.sql(
        "UPDATE orders SET ingested_at = '2026-01-31T08:00Z', attributes = '{\"n\": 5}' WHERE order_id LIKE 'A%'"
    )
    within = "stored_from=2026-01-31T07:00Z&stored_to=2026-01-31T09:00Z"

    _, first = await api.get(f"/v1/orders?{within}&limit=1")
    _, second = await api.get(f"/v1/orders?{within}&limit=1&cursor={first['next_cursor']}")
    _, by_attribute = await api.get("/v1/orders?attribute=n%3D5&prefix=A1")
    mixed, _ = await api.get(f"/v1/orders?cursor={first['next_cursor']}")
    malformed, problem = await api.get("/v1/orders?attribute=n")

    assert [page["orders"][0]["order"]["id"] for page in (first, second, by_attribute)] == ["A1", "A2", "A1"]
    assert (second["next_cursor"], mixed, malformed, problem["parameter"]) == (None, 422, 422, "attribute")


async def test_the_history_of_an_order_is_shown_page_by_page(scene: Scene, api: Api) -> None:
    for number in range(3):
        await scene.add(order_id="A", document=document("A", price=f"{number}.00"), origin="api:shop")
        async with scene.worker(history=3600.0):
            await scene.finished()

    _, everything = await api.get("/v1/orders/A/history")
    _, newest = await api.get("/v1/orders/A/history?limit=1")
    _, older = await api.get(f"/v1/orders/A/history?limit=2&cursor={newest['next_cursor']}")
    _, unknown = await api.get("/v1/orders/B/history")
    wrong, _ = await api.get("/v1/orders/A/history?cursor=abc")

    events = [event["event"] for event in everything["history"]]
    assert sorted(events) == ["changed", "changed", "enqueued", "enqueued", "enqueued", "inserted"]
    assert everything["history"][-1] | {"at": ""} == {"at": "", "event": "enqueued", "by": "api:shop"}
    assert [event["event"] for event in newest["history"]] == ["changed", "enqueued"]
    assert [event["event"] for event in older["history"]] == ["changed", "enqueued", "inserted", "enqueued"]
    assert (older["next_cursor"], unknown["history"], wrong) == (None, [], 422)


async def test_an_order_is_erased_for_good_and_the_audit_log_says_by_whom(scene: Scene, api: Api) -> None:
    await store(scene, "A", "B")
    await scene.redis.xadd(scene.keys.dead, {"order_id": "A", "reason": "rejected"})

    first = await api.call("DELETE", "/v1/orders/A")
    second = await api.call("DELETE", "/v1/orders/A")
    found = await api.get("/v1/orders/A")
    await scene.enqueue("A")
    async with scene.worker():
        await scene.finished()

    assert first == (200, {"order_id": "A", "removed": {"rows": 1, "retries": 0, "dead_letters": 1}})
    assert second == (200, {"order_id": "A", "removed": {"rows": 0, "retries": 0, "dead_letters": 0}})
    assert (found[0], found[1]["ingestion"]["state"], found[1]["order"]) == (200, "erased", None)
    assert found[1]["erased_at"].endswith("Z")
    assert set(await scene.rows()) == {"B"}
    rows = await scene.sql("SELECT DISTINCT actor, action, selection FROM audit_log")
    assert [tuple(row) for row in rows] == [("shop", "orders.erase", '{"ids": ["A"]}')]


async def test_a_table_that_somebody_has_locked_is_told_from_a_query_that_is_too_slow(scene: Scene, api: Api) -> None:
    async with connected(scene.dsn) as blocker, blocker.transaction():
        await blocker.execute("LOCK TABLE orders")

        status, problem = await api.call("DELETE", "/v1/orders/A")

    assert (status, problem["code"]) == (503, "store_unavailable")
    assert "locked" in problem["detail"]


async def test_an_erasure_without_redis_can_be_repeated(scene: Scene, api: Api) -> None:
    await store(scene, "A")
    await scene.redis.xadd(scene.keys.dead, {"order_id": "A", "reason": "rejected"})
    async with running_api(NO_REDIS, scene.dsn, scene.queue) as cut_off:
        status, problem = await cut_off.call("DELETE", "/v1/orders/A")
    rows = await scene.rows()

    again = await api.call("DELETE", "/v1/orders/A")

    assert (status, problem["code"], rows) == (503, "queue_unavailable", {})
    assert again[1]["removed"] == {"rows": 0, "retries": 0, "dead_letters": 1}


async def test_many_concurrent_requests_share_the_search(scene: Scene, api: Api) -> None:
    await store(scene, "A")
    before = (await scene.redis.info("commandstats"))["cmdstat_evalsha"]["calls"]

    async def get() -> int:
        return (await api.get("/v1/orders/A"))[0]

    statuses = await asyncio.gather(*(get() for _ in range(100)))
    calls = (await scene.redis.info("commandstats"))["cmdstat_evalsha"]["calls"] - before

    assert statuses == [200] * 100
    # With the memory for large orders, six requests of a caller could share a search.
    assert calls < 16


async def test_small_orders_wait_for_no_memory_and_large_ones_do(scene: Scene) -> None:
    await store(scene, "small", "large")
    async with connected(scene.dsn) as sql:
        # Values that PostgreSQL compresses to a hundredth.
        await sql.execute(
            "UPDATE orders SET attributes = jsonb_build_object('note', repeat('x', 1000000)) WHERE order_id = 'large'"
        )
    large: list[str] = []
    backends = Backends(as_api(scene.redis_url), as_api(scene.dsn), scene.queue)
    async with (
        OrderConnections.open(backends.redis_url, backends.postgres_dsn) as connections,
        Orders.open(backends, connections) as orders,
    ):

        async def hold(order_id: str) -> None:
            large.append(order_id)

        states = [await orders.locate(order_id, partial(hold, order_id)) for order_id in ("small", "large", "missing")]

    assert large == ["large"]
    assert [state.row is not None for state in states] == [True, True, False]
    assert states[1].row is not None
    assert len(states[1].row["order"]["attributes"]) > 1_000_000


async def test_lists_wait_for_a_database_connection_no_longer_than_for_a_statement(scene: Scene, api: Api) -> None:
    async with connected(scene.dsn) as other, other.transaction():
        await other.execute("LOCK TABLE orders")
        began = time.monotonic()
        answers = await asyncio.gather(*(api.get("/v1/orders") for _ in range(40)))
        took = time.monotonic() - began

    assert {status for status, _ in answers} == {503}
    assert took < 15, "waiting for a connection and for the statement are limited"
    assert (await api.get("/v1/orders"))[0] == 200


async def test_a_list_whose_client_has_gone_is_not_read(scene: Scene, api: Api) -> None:
    async with connected(scene.dsn) as looking, connected(scene.dsn) as other, other.transaction():
        await other.execute("LOCK TABLE orders")
        asking = [asyncio.create_task(api.get("/v1/orders")) for _ in range(40)]
        await eventually(lambda: _waiting(looking, 4))
        for task in asking:
            task.cancel()
        await asyncio.wait(asking)

        # Those that run end with their time limit, and none follows them.
        await eventually(lambda: _waiting(looking, 0), within=8)


async def _waiting(connection: asyncpg.Connection, count: int) -> bool:
    query = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    return int(await connection.fetchval(query)) == count
