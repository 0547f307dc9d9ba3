"""How a worker finds out that the external API is back, and what it does with its probes then."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from aiohttp import web
from consumers import Consumer
from integration.scene import GROUP, Scene, assert_right, document, ids
from integration.watching import all_stored_at_the_first_attempt, is_open, requests, until
from structlog.testing import capture_logs

from ingest.domain.deliveries.delivery import DeadReason, Delivery, EntryRef
from ingest.domain.errors import QueueUnavailable
from ingest.lab.servers.server import free_port
from ingest.services.worker_parts import Classes


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


@dataclass
class FickleApi:
    """An API that answers each order with the status that the test has chosen for it, and holds it while it wants to.

    With the status 0 it closes the connection.
    """

    status_of: Callable[[str], int] = lambda _: 200
    asked: Counter[str] = field(default_factory=Counter)
    in_flight: set[str] = field(default_factory=set)
    with_others: dict[str, set[str]] = field(default_factory=dict)
    slow: "set[str]" = field(default_factory=set)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    url: str = ""

    async def answer(self, request: web.Request) -> web.Response:
        order_id = request.match_info["order_id"]
        self.asked[order_id] += 1
        self.with_others[order_id] = set(self.in_flight)
        self.in_flight.add(order_id)
        try:
            if order_id in self.slow:
                await self.go_on.wait()
            status = self.status_of(order_id)
        finally:
            self.in_flight.discard(order_id)
        if not status:
            assert request.transport is not None
            request.transport.abort()
        if status != 200:
            return web.Response(status=status)
        return web.Response(body=document(order_id), content_type="application/json")


@asynccontextmanager
async def fickle() -> AsyncIterator[FickleApi]:
    api = FickleApi()
    application = web.Application()
    application.router.add_get("/orders/{order_id}", api.answer)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", free_port())
    await site.start()
    api.url = site.name + "/orders/{order_id}"
    try:
        yield api
    finally:
        api.go_on.set()
        await runner.cleanup()


@pytest.fixture
async def api() -> AsyncIterator[FickleApi]:
    async with fickle() as api:
        yield api


# -- who is asked -------------------------------------------------------------------------------------------------


async def test_an_order_that_was_given_before_shows_that_the_api_is_back_where_every_queued_one_fails(
    scene: Scene, api: FickleApi
) -> None:
    bad = ids(30, "bad")

    async with scene.worker(upstream_url=api.url, max_attempts=1) as worker:
        await scene.enqueue("good")
        await scene.finished()
        api.status_of = lambda _: 500
        await scene.enqueue(*bad)
        await until(lambda: is_open(worker))
        asked = api.asked["good"]
        api.status_of = lambda order_id: 200 if order_id == "good" else 500

        await until(lambda: not is_open(worker), within=30)
        await scene.finished()

    assert api.asked["good"] > asked
    assert sorted(letter["order_id"] for letter in await scene.dead()) == sorted(bad)


async def test_a_queued_order_shows_that_the_api_is_back_where_the_one_that_was_given_has_gone_bad(
    scene: Scene, api: FickleApi
) -> None:
    async with scene.worker(upstream_url=api.url) as worker:
        await scene.enqueue("gone-bad")
        await scene.finished()
        api.status_of = lambda _: 500
        await scene.enqueue(*ids(30))
        await until(lambda: is_open(worker))
        api.status_of = lambda order_id: 500 if order_id == "gone-bad" else 200

        await all_stored_at_the_first_attempt(scene, ["gone-bad", *ids(30)])

    assert api.asked["gone-bad"] > 1


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

    # Nothing was given before, so every probe is an order of the queue.
    settings: dict[str, object] = {"upstream_url": api.url, "upstream_status": "404=not_found", "claim_idle": 3600}
    async with scene.worker(classes=Classes(consumer=SlowToBury), **settings) as worker:
        await until(lambda: is_open(worker))
        api.status_of = lambda _: 404 if not dead_lettering.is_set() else 200
        await until(dead_lettering.is_set, within=30)
        await until(lambda: not is_open(worker))
        await scene.stored_at_least(29)
        gate.set()

        await scene.finished()

    assert [letter["reason"] for letter in await scene.dead()] == ["not_found"]


async def test_a_probe_whose_read_has_lost_its_reply_is_found_again(scene: Scene, api: FickleApi) -> None:
    lost: list[EntryRef] = []

    class LosesAProbe(Consumer):
        async def read(self, count: int, block: float, *, claims: bool = True) -> list[Delivery]:
            taken = await super().read(count, block, claims=claims)
            # Only a probe takes no released entries.
            if taken and not claims and not lost:
                lost.append(taken[0].entry)
                raise QueueUnavailable("the reply was lost")
            return taken

    api.status_of = lambda _: 500
    await scene.enqueue(*ids(60))

    async with scene.worker(classes=Classes(consumer=LosesAProbe), upstream_url=api.url, claim_idle=3600) as worker:
        await until(lambda: is_open(worker))
        await until(lambda: bool(lost), within=30)
        api.status_of = lambda _: 200

        await all_stored_at_the_first_attempt(scene, ids(60))


# -- quarantined orders -------------------------------------------------------------------------------------------


async def test_an_isolated_entry_waits_until_nothing_else_is_in_flight(scene: Scene, api: FickleApi) -> None:
    async with scene.consumer("gone") as gone:
        await scene.enqueue("quarantined")
        (delivery,) = await gone.read(1, 1.0)
        # Handed over so often that it may have killed those who held it; and released, so that anybody may take it.
        await scene.redis.xclaim(scene.keys.stream, GROUP, "gone", 0, [delivery.entry.id], retrycount=6, justid=True)
    others = ids(10)
    api.slow = set(others)
    await scene.enqueue(*others)

    with capture_logs() as logs:
        async with scene.worker(upstream_url=api.url, claim_idle=1, max_deliveries=20) as worker:
            await until(lambda: api.in_flight == set(others))
            # It is taken while the others are in flight.
            await until(lambda: any(entry["event"] == "entry_isolated" for entry in logs))
            await until(lambda: worker.metric("ingest_in_flight") == 11)
            assert api.asked["quarantined"] == 0
            held_until = time.monotonic() + 0.5
            await until(lambda: time.monotonic() > held_until)
            assert api.asked["quarantined"] == 0, "it waits for as long as they take"
            api.go_on.set()
            await scene.finished()

    assert api.with_others["quarantined"] == set()
    assert_right(await scene.rows(), ["quarantined", *others])


# -- what is logged -----------------------------------------------------------------------------------------------


async def test_an_outage_is_a_few_lines_in_the_log_however_long_it_lasts(scene: Scene, api: FickleApi) -> None:
    with capture_logs() as logs:
        # A slow machine may send a short heartbeat late, which would be logged.
        settings = {"upstream_url": api.url, "heartbeat_ttl": 30.0}
        async with scene.worker("a", **settings) as one, scene.worker("b", **settings) as other:
            good: list[str] = []
            while not (requests(one) and requests(other)):  # each knows an order that it can ask for
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
