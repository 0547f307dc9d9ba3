"""An external API with ambiguous statuses. Rules define the meaning of its responses, and without rules evidence decides."""

import json
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from integration.scene import PLAIN_MAPPING, Scene, assert_right, document, ids
from integration.site import serving_routes
from integration.watching import all_stored_at_the_first_attempt, is_open, nothing_is_blamed, until
from support import eventually

# Of a test with all kinds of responses.
MIXED = int(os.environ.get("INGEST_TEST_RULED", "100"))
CODE = "errors[].extensions.code"
RULES = [
    {"status": 202, "body": {"path": "status", "equals": "pending"}, "meaning": "retry", "delay": 0.5},
    {
        "body": {"path": CODE, "equals": "THROTTLED"},
        "meaning": "throttled",
        "delay_path": "extensions.wait",
        "delay_unit": "milliseconds",
    },
    {"body": {"path": CODE, "equals": "ACCESS_DENIED"}, "meaning": "credential"},
    {"body": {"path": "errors", "present": True}, "meaning": "outage"},
    {"body": {"path": "data.order", "null": True}, "meaning": "not_found"},
    {"status": 400, "body": {"path": "code", "equals": "archived"}, "meaning": "rejected"},
]
# How a response is mapped.
MAPPING = 'envelope = "data.order"' + PLAIN_MAPPING

Answer = Callable[[str], web.Response]


def whole(order_id: str, *errors: str, status: int = 200) -> web.Response:
    body: dict[str, Any] = {"data": {"order": json.loads(document(order_id))}}
    if errors:
        body["errors"] = [{"message": "no access to this field", "extensions": {"code": code}} for code in errors]
    return web.json_response(body, status=status)


def pending(_: str) -> web.Response:
    return web.json_response({"status": "pending"}, status=202)


def throttled(_: str) -> web.Response:
    error = {"message": "Throttled", "extensions": {"code": "THROTTLED"}}
    return web.json_response({"data": None, "errors": [error], "extensions": {"wait": 700}})


def denied(order_id: str) -> web.Response:
    return whole(order_id, "ACCESS_DENIED")


def failed(_: str) -> web.Response:
    return web.json_response({"data": None, "errors": [{"extensions": {"code": "INTERNAL"}}]})


def deleted(_: str) -> web.Response:
    return web.json_response({"data": {"order": None}})


def archived(_: str) -> web.Response:
    return web.json_response({"code": "archived"}, status=400)


@dataclass
class Shop:
    """An API that serves every order, after the responses that a test gives it.

    Attributes:
        first: responses to the first requests for an order.
        always: the response to every request for an order.
        everything: the response to every request.
        asked: when each order was requested.
    """

    first: dict[str, list[Answer]] = field(default_factory=dict)
    always: dict[str, Answer] = field(default_factory=dict)
    everything: Answer | None = None
    asked: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    url: str = ""

    async def one(self, request: web.Request) -> web.Response:
        order_id = request.match_info["order_id"]
        self.asked[order_id].append(time.monotonic())
        if self.everything is not None:
            return self.everything(order_id)
        if self.first.get(order_id):
            return self.first[order_id].pop(0)(order_id)
        return self.always.get(order_id, whole)(order_id)

    async def several(self, request: web.Request) -> web.Response:
        order_ids = request.query["ids"].split(",")
        self.asked[request.query["ids"]].append(time.monotonic())
        for order_id in order_ids:
            if self.first.get(order_id):
                return self.first[order_id].pop(0)(order_id)
        return web.json_response({"orders": [json.loads(whole(order_id).body) for order_id in order_ids]})  # type: ignore[arg-type]

    def pause(self, order_id: str) -> float:
        """Seconds between the first two requests for an order."""
        return self.asked[order_id][1] - self.asked[order_id][0]


@pytest.fixture
async def shop() -> AsyncIterator[Shop]:
    shop = Shop()
    async with serving_routes({"/orders/{order_id}": shop.one, "/orders": shop.several}) as shop.url:
        yield shop


@pytest.fixture
def mapping(tmp_path: Path) -> str:
    (tmp_path / "shop.toml").write_text(MAPPING)
    return str(tmp_path / "shop.toml")


def settings(
    shop: Shop, mapping: str, *rules: Mapping[str, Any], client: str = "native", **more: Any
) -> dict[str, Any]:
    url = f"{shop.url}/orders/{{order_id}}"
    return {
        "upstream_url": url,
        "mapping": mapping,
        "responses": json.dumps(rules) if rules else None,
        "upstream_client": client,
        **more,
    }


both_clients = pytest.mark.parametrize("client", ["native", "aiohttp"])


@both_clients
async def test_a_200_that_means_throttled_waits_as_it_says_and_counts_no_attempt(
    scene: Scene, shop: Shop, mapping: str, client: str
) -> None:
    order_ids = ids(20)
    shop.first = {"order-3": [throttled]}
    await scene.enqueue(*order_ids)

    async with scene.worker(**settings(shop, mapping, *RULES, client=client)) as worker:
        await scene.finished()
        assert worker.metric("ingest_retries_total", reason="throttled") == 1

    await all_stored_at_the_first_attempt(scene, order_ids)
    assert 0.7 <= shop.pause("order-3") < 5


@both_clients
async def test_a_202_that_means_pending_is_requested_again_after_its_delay_and_counts_an_attempt(
    scene: Scene, shop: Shop, mapping: str, client: str
) -> None:
    shop.first = {"order-0": [pending, pending]}
    await scene.enqueue(*ids(5))

    async with scene.worker(**settings(shop, mapping, *RULES, client=client)) as worker:
        await scene.finished()
        assert not is_open(worker)

    rows = await scene.rows()
    assert_right(rows, ids(5))
    assert {order_id: row["attempts"] for order_id, row in rows.items()} == dict.fromkeys(ids(5), 1) | {"order-0": 3}
    assert 0.5 <= shop.pause("order-0") < 5
    assert len(shop.asked["order-0"]) == 3


async def test_an_order_that_stays_pending_is_dead_after_its_attempts_and_all_may_be_pending_at_once(
    scene: Scene, shop: Shop, mapping: str
) -> None:
    order_ids = ids(30)
    shop.always = dict.fromkeys(order_ids, pending)
    await scene.enqueue(*order_ids)

    async with scene.worker(**settings(shop, mapping, *RULES, max_attempts=2)) as worker:
        await scene.finished()
        assert not is_open(worker)

    dead = await scene.dead()
    assert {(entry["reason"], entry["attempts"]) for entry in dead} == {("attempts_exhausted", "2")}
    assert {entry["error"] for entry in dead} == {"HTTP 202, by the rule responses[0]"}
    assert {len(times) for times in shop.asked.values()} == {2}


@both_clients
async def test_a_denial_beside_partial_data_stops_the_requests_and_stores_nothing(
    scene: Scene, shop: Shop, mapping: str, client: str
) -> None:
    await scene.enqueue("known")

    async with scene.worker(**settings(shop, mapping, *RULES, client=client)) as worker:
        await scene.finished()
        shop.everything = denied
        await scene.enqueue(*ids(30))
        await until(lambda: is_open(worker))
        await nothing_is_blamed(scene)
        assert await scene.stored() == 1
        shop.everything = None
        await scene.finished()

    await all_stored_at_the_first_attempt(scene, ["known", *ids(30)])


async def test_a_denial_for_one_order_alone_is_its_own_fault(scene: Scene, shop: Shop, mapping: str) -> None:
    shop.always = {"order-7": denied}
    await scene.enqueue(*ids(20))

    async with scene.worker(**settings(shop, mapping, *RULES, max_attempts=1)):
        await scene.finished()

    (dead,) = await scene.dead()
    assert (dead["order_id"], dead["reason"]) == ("order-7", "attempts_exhausted")
    assert "responses[2]" in dead["error"]
    assert "no access to this field" in dead["error"]
    assert await scene.stored() == 19


@both_clients
async def test_orders_that_a_rule_calls_deleted_or_rejected_are_dead_without_any_evidence(
    scene: Scene, shop: Shop, mapping: str, client: str
) -> None:
    order_ids = ids(20)
    shop.always = dict.fromkeys(order_ids[:10], deleted) | dict.fromkeys(order_ids[10:], archived)
    await scene.enqueue(*order_ids)

    async with scene.worker(**settings(shop, mapping, *RULES, client=client)) as worker:
        await scene.finished()
        assert not is_open(worker)

    dead = {entry["order_id"]: entry["reason"] for entry in await scene.dead()}
    assert dead == dict.fromkeys(order_ids[:10], "not_found") | dict.fromkeys(order_ids[10:], "rejected")
    assert {len(times) for times in shop.asked.values()} == {1}


async def test_an_outage_by_a_rule_opens_the_circuit_and_blames_no_order(
    scene: Scene, shop: Shop, mapping: str
) -> None:
    shop.everything = failed
    await scene.enqueue(*ids(30))

    async with scene.worker(**settings(shop, mapping, *RULES)) as worker:
        await until(lambda: is_open(worker))
        assert worker.metric("ingest_circuit_unproven") == 0
        await nothing_is_blamed(scene)
        shop.everything = None
        await scene.finished()

    await all_stored_at_the_first_attempt(scene, ids(30))


@pytest.mark.parametrize("answer", [deleted, failed, throttled, pending, archived])
async def test_without_rules_evidence_decides_as_before(scene: Scene, shop: Shop, mapping: str, answer: Answer) -> None:
    shop.everything = answer
    await scene.enqueue(*ids(20))

    async with scene.worker(**settings(shop, mapping)) as worker:
        await until(lambda: is_open(worker))
        assert worker.metric("ingest_circuit_unproven") == 1
        await nothing_is_blamed(scene)
        shop.everything = None
        await scene.finished()

    await all_stored_at_the_first_attempt(scene, ids(20))


async def test_a_rule_for_a_bulk_response_concerns_all_orders_of_the_request(
    scene: Scene, shop: Shop, mapping: str
) -> None:
    order_ids = ids(10)
    shop.first = {"order-3": [throttled]}
    bulk = {
        "upstream_bulk_url": f"{shop.url}/orders?ids={{order_ids}}",
        "upstream_bulk_path": "orders",
        "upstream_bulk_id": "data.order.id",
        "upstream_bulk_size": 10,
    }
    await scene.enqueue(*order_ids)

    async with scene.worker(**settings(shop, mapping, *RULES, **bulk)) as worker:
        await scene.finished()
        assert worker.metric("ingest_retries_total", reason="throttled") == len(order_ids)

    await all_stored_at_the_first_attempt(scene, order_ids)


async def test_a_list_that_only_some_bulk_responses_gain_is_no_order_s_fault(scene: Scene) -> None:
    async def several(request: web.Request) -> web.Response:
        order_ids = request.query["ids"].split(",")
        body: dict[str, Any] = {"orders": [json.loads(document(order_id)) for order_id in order_ids]}
        if any(order_id.startswith("order") for order_id in order_ids):
            body["warnings"] = []
        return web.json_response(body)

    async with serving_routes({"/orders": several}) as url:
        given = {"upstream_bulk_url": f"{url}/orders?ids={{order_ids}}", "upstream_bulk_size": 5, "max_attempts": 1}
        await scene.enqueue("known")
        async with scene.worker(**given):
            await scene.finished()
            await scene.enqueue(*ids(10))
            # With one attempt, a failure that counts would be the last one.
            await eventually(lambda: _all_retried(scene, 10), within=30)
            assert await scene.dead() == []


async def _all_retried(scene: Scene, count: int) -> bool:
    return int(await scene.redis.zcard(scene.keys.retry)) == count


@pytest.mark.parametrize(
    "rule",
    [
        None,
        {"status": 204, "header": {"name": "X-Wait", "present": True}, "meaning": "retry", "delay_header": "X-Wait"},
    ],
)
async def test_a_part_without_content_is_an_empty_list_unless_a_rule_says_otherwise(
    scene: Scene, tmp_path: Path, rule: dict[str, Any] | None
) -> None:
    requests = 0

    async def order(request: web.Request) -> web.Response:
        return whole(request.match_info["order_id"])

    async def refunds(_: web.Request) -> web.Response:
        nonlocal requests
        requests += 1
        return web.Response(status=204, headers={"X-Wait": "0.5"} if requests == 1 else {})

    parts = '[parts.refunds]\nurl = "/orders/{order_id}/refunds"\nitems = "refunds"\n[attributes]\nrefunds = "parts.refunds[].id"\n'
    (tmp_path / "parts.toml").write_text(MAPPING + parts)
    async with serving_routes({"/orders/{order_id}": order, "/orders/{order_id}/refunds": refunds}) as url:
        await scene.enqueue("order-1")
        given = {"upstream_url": f"{url}/orders/{{order_id}}", "mapping": str(tmp_path / "parts.toml")}
        async with scene.worker(**given, responses=rule and json.dumps([rule])):
            await scene.finished()

    rows = await scene.rows()
    assert_right(rows, ["order-1"])
    assert (rows["order-1"]["attempts"], requests) == ((1, 1) if rule is None else (2, 2))


@pytest.mark.parametrize("client", ["native", "aiohttp"])
async def test_each_of_many_orders_has_the_outcome_that_its_responses_mean(
    scene: Scene, shop: Shop, mapping: str, client: str
) -> None:
    order_ids = ids(MIXED)
    # Few are throttled, because that slows down all others.
    kinds = {order_id: number if number < 10 else 3 + number % 7 for number, order_id in enumerate(order_ids)}
    first: dict[int, list[Answer]] = {1: [throttled], 2: [pending, throttled], 5: [pending]}
    always = {3: deleted, 4: archived}
    shop.first = {order_id: list(first[kind]) for order_id, kind in kinds.items() if kind in first}
    shop.always = {order_id: always[kind] for order_id, kind in kinds.items() if kind in always}
    await scene.enqueue(*order_ids)

    async with scene.worker(**settings(shop, mapping, *RULES, client=client)) as worker:
        await scene.finished(within=200)
        assert worker.metric("ingest_retries_total", reason="throttled") == 2

    dead = {entry["order_id"]: (entry["reason"], entry["attempts"]) for entry in await scene.dead()}
    assert dead == {
        order_id: ("not_found" if kind == 3 else "rejected", "1") for order_id, kind in kinds.items() if kind in always
    }
    rows = await scene.rows()
    assert_right(rows, [order_id for order_id in order_ids if order_id not in dead])
    assert all(rows[order_id]["attempts"] == 1 + (kinds[order_id] in {2, 5}) for order_id in rows)
    assert all(len(shop.asked[order_id]) == 1 + len(first[kind]) for order_id, kind in kinds.items() if kind in first)
    assert all(len(shop.asked[order_id]) == 1 for order_id in dead)
