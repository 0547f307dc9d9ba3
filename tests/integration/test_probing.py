"""How a worker detects that the external API is available again, and handles its probes then."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from consumers import Consumer
from integration.scene import Scene, document, ids
from integration.site import serving_routes
from integration.watching import all_stored_at_the_first_attempt, is_open, requests, until
from structlog.testing import capture_logs

from ingest.domain.deliveries.delivery import DeadReason, Delivery
from ingest.services.worker_parts import Classes


@dataclass
class FickleApi:
    """An API that answers each order with the status that the test has chosen for it, and holds it while it wants to.

    With the status 0 it closes the connection.
    """

    status_of: Callable[[str], int] = lambda _: 200
    asked: Counter[str] = field(default_factory=Counter)
    slow: "set[str]" = field(default_factory=set)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        order_id = request.match_info["order_id"]
        self.asked[order_id] += 1
        if order_id in self.slow:
            await self.go_on.wait()
        status = self.status_of(order_id)
        if not status:
            assert request.transport is not None
            request.transport.abort()
        if status != 200:
            return web.Response(status=status)
        return web.Response(body=document(order_id), content_type="application/json")


@asynccontextmanager
async def fickle() -> AsyncIterator[FickleApi]:
    api = FickleApi()
    async with serving_routes({"/orders/{order_id}": api.answer}) as url:
        api.url = url + "/orders/{order_id}"
        try:
            yield api
        finally:
            api.go_on.set()


@pytest.fixture
async def api() -> AsyncIterator[FickleApi]:
    async with fickle() as api:
        yield api


# -- what becomes of a probe --------------------------------------------------------------------------------------


async def test_a_probe_that_is_settling_is_not_cancelled_when_the_circuit_closes(scene: Scene, api: FickleApi) -> None:
    dead_lettering, gate = asyncio.Event(), asyncio.Event()

    class SlowToBury(Consumer):
        async def dead_letter(self, delivery: Delivery, reason: DeadReason, error: str) -> bool:
            dead_lettering.set()
            await gate.wait()
            return await super().dead_letter(delivery, reason, error)

    api.status_of = lambda _: 500
    await scene.enqueue(*ids(30))

    # No order was fetched before, so every probe is an order of the queue.
    settings: dict[str, object] = {"upstream_url": api.url, "upstream_status": "404=not_found", "claim_idle": 3600}
    async with scene.worker(classes=Classes(partition=SlowToBury), **settings) as worker:
        await until(lambda: is_open(worker))
        api.status_of = lambda _: 404 if not dead_lettering.is_set() else 200
        await until(dead_lettering.is_set, within=30)
        await until(lambda: not is_open(worker))
        await scene.stored_at_least(29)
        gate.set()

        await scene.finished()

    assert [letter["reason"] for letter in await scene.dead()] == ["not_found"]


# -- log events -----------------------------------------------------------------------------------------------


async def test_an_outage_is_a_few_lines_in_the_log_however_long_it_lasts(scene: Scene, api: FickleApi) -> None:
    with capture_logs() as logs:
        # A slow machine may send a short heartbeat late, which would be logged.
        settings = {"upstream_url": api.url, "heartbeat_ttl": 30.0}
        async with scene.worker("a", **settings) as one, scene.worker("b", **settings) as other:
            good: list[str] = []
            while not (requests(one) and requests(other)):  # each has an order that it can request
                await scene.enqueue(f"good-{len(good)}")
                good.append(f"good-{len(good)}")
                await scene.finished()
            api.status_of = lambda _: 500
            await scene.enqueue(*ids(200))
            await until(lambda: is_open(one) and is_open(other))
            asked = sum(api.asked.values())
            await until(lambda: sum(api.asked.values()) >= asked + 8, within=30)
            api.status_of = lambda _: 200
            await all_stored_at_the_first_attempt(scene, [*good, *ids(200)])
            # One of the two may have processed everything before the other's next probe.
            await until(lambda: sum(entry["event"] == "entries_released" for entry in logs) == 2)

    said = Counter(entry["event"] for entry in logs)
    assert said.pop("circuit_opened") == said.pop("circuit_closed") == 2
    assert said.pop("entries_released") == 2
    assert not said
    assert sum(entry.get("entries", 0) for entry in logs if entry["event"] == "entries_released") >= 20
