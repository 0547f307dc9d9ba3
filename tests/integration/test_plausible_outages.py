"""An external API that fails as a whole with responses that look like one order's own: no order is dead-lettered for that."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from integration.scene import RunningWorker, Scene, assert_right, document, ids
from integration.site import serving_routes
from integration.watching import is_open, nothing_is_blamed, until
from set_ups import SetUp
from structlog.testing import capture_logs
from support import eventually

from ingest.operations.doctor.finding import Level

Answer = Callable[[], web.Response]
PAGE = "<!doctype html><title>Log in</title>"


def html() -> web.Response:
    return web.Response(text=PAGE, content_type="text/html")


def json_of(text: str) -> Answer:
    return lambda: web.Response(text=text, content_type="application/json")


def status_of(code: int) -> Answer:
    return lambda: web.Response(status=code)


FAILURES: dict[str, Answer] = {
    "an HTML page": html,
    "an empty object": json_of("{}"),
    "errors": json_of('{"errors": [{"message": "Internal error"}]}'),
    "data without an order": json_of('{"data": {"order": null}}'),
    "another list": json_of('{"orders": [], "warnings": []}'),
    "an object keyed by ID": json_of('{"order-1": {}, "order-2": {}}'),
    "null": json_of("null"),
    "another order": lambda: web.Response(body=document("another"), content_type="application/json"),
    "the login page": lambda: web.Response(status=302, headers={"Location": "/login"}),
    **{f"HTTP {code}": status_of(code) for code in (204, 400, 404, 410, 422, 423, 426, 430, 451)},
}


@dataclass
class Api:
    """An API with every order, singly and in lists, except for `missing` ones. All requests end like `broken`, if set."""

    broken: Answer | None = None
    missing: set[str] = field(default_factory=set)
    requests: int = 0
    url: str = ""

    async def one(self, request: web.Request) -> web.Response:
        self.requests += 1
        order_id = request.match_info["order_id"]
        if self.broken is not None:
            return self.broken()
        if order_id in self.missing:
            return web.Response(status=404)
        return web.Response(body=document(order_id), content_type="application/json")

    async def several(self, request: web.Request) -> web.Response:
        self.requests += 1
        if self.broken is not None:
            return self.broken()
        there = [order_id for order_id in request.query["ids"].split(",") if order_id not in self.missing]
        return web.Response(body=b"[%s]" % b",".join(map(document, there)), content_type="application/json")

    async def login(self, _: web.Request) -> web.Response:
        return html()

    def settings(self, way: str) -> dict[str, object]:
        """What makes a worker request orders in this way."""
        settings: dict[str, object] = {"upstream_url": f"{self.url}/orders/{{order_id}}"}
        if way == "bulk":
            settings |= {"upstream_bulk_url": f"{self.url}/orders?ids={{order_ids}}", "upstream_bulk_size": 10}
        return settings


@pytest.fixture
async def api() -> AsyncIterator[Api]:
    async with served() as api:
        yield api


@asynccontextmanager
async def served() -> AsyncIterator[Api]:
    api = Api()
    routes = {"/orders/{order_id}": api.one, "/orders": api.several, "/login": api.login}
    async with serving_routes(routes) as api.url:
        yield api


async def probed(api: Api, times: int = 2) -> None:
    """Wait until the API has received more requests."""
    enough = api.requests + times
    await until(lambda: api.requests >= enough)


@dataclass
class Shop:
    """One API that fails in one way, with its own queue and worker."""

    scene: Scene
    api: Api
    answer: Answer
    prefix: str
    worker: RunningWorker

    async def breaks(self, name: str) -> None:
        """Break the API while orders are requested, until it is probed."""
        self.api.broken = self.answer
        await self.scene.enqueue(*ids(20, f"{self.prefix}-{name}"))
        await until(lambda: is_open(self.worker), within=30)
        await probed(self.api)
        await nothing_is_blamed(self.scene)

    async def heals(self) -> None:
        self.api.broken = None
        await self.scene.finished()
        assert await self.scene.dead() == []


@pytest.mark.long
@pytest.mark.parametrize(("way", "transport"), [("single", "native"), ("bulk", "aiohttp")])
async def test_no_order_is_dead_lettered_while_every_request_fails_the_same_way(
    scene: Scene, way: str, transport: str
) -> None:
    async with AsyncExitStack() as stack:
        shops = []
        for number, failure in enumerate(FAILURES):
            own = Scene(scene.redis, scene.redis_url, scene.dsn, f"{scene.queue}-{number}", scene.api)
            api = await stack.enter_async_context(served())
            worker = await stack.enter_async_context(own.worker(**api.settings(way), upstream_transport=transport))
            shops.append(Shop(own, api, FAILURES[failure], f"shop-{number}", worker))

        # At a first start, no order is known, so nothing is stored before all of them have failed.
        await asyncio.gather(*(shop.breaks("first") for shop in shops))
        assert await scene.stored() == 0
        await asyncio.gather(*(shop.heals() for shop in shops))
        # And after the API has worked.
        await asyncio.gather(*(shop.breaks("later") for shop in shops))
        await asyncio.gather(*(shop.heals() for shop in shops))

    everything = [f"shop-{number}-{name}" for number in range(len(shops)) for name in ("first", "later")]
    rows = await scene.rows()
    assert_right(rows, [order_id for prefix in everything for order_id in ids(20, prefix)])
    assert {row["attempts"] for row in rows.values()} == {1}


@pytest.mark.parametrize("way", ["single", "bulk"])
async def test_a_failure_of_a_moment_blames_no_order(scene: Scene, api: Api, way: str) -> None:
    """Too short to open the circuit: requests before and after it succeed."""
    order_ids = ids(600)
    done = asyncio.Event()

    async def flicker() -> None:
        while not done.is_set():
            api.broken = status_of(404)
            await asyncio.sleep(0.003)  # how long it fails, and then works, is the situation
            api.broken = None
            await asyncio.sleep(0.1)

    await scene.enqueue("known")
    async with scene.worker(**api.settings(way), concurrency=4), asyncio.TaskGroup() as tasks:
        await scene.finished()
        tasks.create_task(flicker())
        await scene.enqueue(*order_ids)
        await scene.finished()
        done.set()

    assert await scene.dead() == []
    assert await scene.stored() == 601


@pytest.mark.parametrize("way", ["single", "bulk"])
async def test_one_missing_order_among_good_ones_is_dead_within_two_seconds(scene: Scene, api: Api, way: str) -> None:
    api.missing = {"missing"}
    async with scene.worker(**api.settings(way)):
        await scene.enqueue(*ids(20))
        await scene.finished()
        started_at = time.monotonic()
        await scene.enqueue("missing", *ids(5, "more"))
        await eventually(lambda: dead(scene, 1))
        took = time.monotonic() - started_at

    assert took < 2
    assert [letter["reason"] for letter in await scene.dead()] == ["not_found"]


@pytest.mark.parametrize("way", ["single", "bulk"])
async def test_a_thousand_orders_that_do_not_exist_are_dead_within_a_minute(scene: Scene, api: Api, way: str) -> None:
    missing = ids(1_000, "missing")
    api.missing = set(missing)
    await scene.enqueue("known")
    async with scene.worker(**api.settings(way)):
        await scene.finished()

    # By a process that has seen only the stored orders.
    async with scene.worker("another", **api.settings(way)):
        await scene.enqueue(*missing)
        await scene.finished(within=60)

    letters = await scene.dead()
    assert sorted(letter["order_id"] for letter in letters) == sorted(missing)
    assert {letter["reason"] for letter in letters} == {"not_found"}


async def dead(scene: Scene, count: int) -> bool:
    return len(await scene.dead()) == count


async def test_known_orders_that_were_deleted_are_no_outage(scene: Scene, api: Api) -> None:
    known = ids(10)
    async with scene.worker(**api.settings("single")):
        await scene.enqueue(*known)
        await scene.finished()
        api.missing = {*known[-2:], "missing"}
        await scene.enqueue(*known[-2:], "missing")
        await eventually(lambda: dead(scene, 3))


async def doctor_asks_for_a_decision(scene: Scene, api: Api) -> bool:
    settings = {"redis_url": scene.redis_url, "postgres_dsn": scene.dsn, "stream": scene.queue}
    found = await SetUp({**settings, "upstream_url": f"{api.url}/orders/{{order_id}}"}).examined("missing-0")
    return any(
        each.level is Level.ERROR and "HTTP 404" in each.what and "404=not_found" in each.advice for each in found
    )


async def test_before_any_order_is_known_missing_ones_wait_and_good_ones_behind_them_are_stored(
    scene: Scene, api: Api
) -> None:
    missing, good = ids(30, "missing"), ids(10, "good")
    api.missing = set(missing)
    with capture_logs() as logs:
        async with scene.worker(**api.settings("single")) as worker:
            await scene.enqueue(*missing)
            await until(lambda: is_open(worker))
            await probed(api)
            await nothing_is_blamed(scene)
            assert worker.metric("ingest_circuit_unproven") == 1
            await eventually(lambda: doctor_asks_for_a_decision(scene, api))
            await scene.enqueue(*good)
            await scene.finished()
            assert worker.metric("ingest_circuit_unproven") == 0

    [opened] = [entry for entry in logs if entry["event"] == "circuit_opened"]
    assert (opened["log_level"], opened["error"]) == (
        "error",
        "HTTP 404; the external API has not delivered any known order",
    )
    assert sorted(await scene.rows()) == sorted(good)
    assert sorted(letter["order_id"] for letter in await scene.dead()) == sorted(missing)
