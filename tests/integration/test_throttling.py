"""An API with a quota: the process waits as it is told, asks for about as much as it may, and blames no order."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from aiohttp import web
from integration.scene import Scene, assert_right, document, ids
from integration.watching import all_stored_at_the_first_attempt, nothing_is_blamed, throughout
from support import Cli, closing_cli, eventually

from ingest.lab.servers.server import free_port

pytestmark = pytest.mark.long


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


@asynccontextmanager
async def api(answer: Callable[[str], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """A URL template of an API that gives these answers."""

    async def serve(request: web.Request) -> web.Response:
        return await answer(request.match_info["order_id"])

    application = web.Application()
    application.router.add_get("/orders/{order_id}", serve)
    runner = web.AppRunner(application, access_log=None)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", free_port())
    await site.start()
    try:
        yield site.name + "/orders/{order_id}"
    finally:
        await runner.cleanup()


def served(order_id: str) -> web.Response:
    return web.Response(body=document(order_id), content_type="application/json")


async def test_one_refusal_with_a_time_to_wait_stops_the_whole_process_for_that_time(scene: Scene) -> None:
    asked: list[float] = []
    ended: list[float] = []
    refused_at = 0.0

    async def answer(order_id: str) -> web.Response:
        nonlocal refused_at
        asked.append(time.monotonic())
        if len(asked) == 50:
            refused_at = time.monotonic()
            return web.Response(status=429, headers={"Retry-After": "3"})
        await asyncio.sleep(0.1)
        ended.append(time.monotonic())
        return served(order_id)

    await scene.enqueue(*ids(200))

    async with api(answer) as url, scene.worker(upstream_url=url):
        await scene.finished()

    after = [at for at in asked if at > refused_at + 0.5]
    assert min(after) >= refused_at + 3, "nobody asks while the API wants to be left alone"
    assert any(refused_at < at < refused_at + 1 for at in ended), "what was in flight may end"
    assert len(after) > 100
    rows = await scene.rows()
    assert_right(rows, ids(200))
    assert {row["attempts"] for row in rows.values()} == {1}


async def test_orders_that_wait_for_a_quota_are_not_sent_while_the_api_refuses_requests(scene: Scene) -> None:
    scene.api.behave(error_rate=1.0, error_status=429)
    orders = ids(50)
    await scene.enqueue(*orders)

    async with scene.worker(upstream_rate=20, upstream_quota=scene.queue):
        await eventually(lambda: _asked(scene, 1))
        await throughout(5.0, lambda: asyncio.sleep(0))

        # After 0, 1, 2 and 4 s, and not 20 times a second.
        assert scene.api.stats().requests <= 6
        scene.api.behave(error_rate=0.0)
        await all_stored_at_the_first_attempt(scene, orders)


async def test_orders_that_wait_for_their_next_try_are_not_sent_while_the_api_asks_to_wait(scene: Scene) -> None:
    asked: list[float] = []
    refused_at: list[float] = []

    async def answer(order_id: str) -> web.Response:
        asked.append(time.monotonic())
        if len(asked) <= 40:
            refuses = len(asked) == 40
            # All are in flight by then, and the refusal comes first.
            await asyncio.sleep(0.3 if refuses else 0.6)
            if refuses:
                refused_at.append(time.monotonic())
            return web.Response(status=429, headers={"Retry-After": "3"}) if refuses else web.Response(status=500)
        if refused_at and time.monotonic() < refused_at[0] + 3:
            return web.Response(status=429, headers={"Retry-After": "3"})
        return served(order_id)

    orders = ids(40)
    await scene.enqueue(*orders)

    async with api(answer) as url, scene.worker(upstream_url=url, concurrency=40, upstream_tries=3):
        await scene.finished()

    early = [at for at in asked if refused_at[0] < at < refused_at[0] + 3]
    assert early == []
    assert min(at for at in asked if at >= refused_at[0] + 3) < refused_at[0] + 6, "it is as long as the API asks for"
    assert_right(await scene.rows(), orders)


async def test_told_to_wait_for_no_time_at_all_it_asks_ever_less_often_and_dead_letters_nothing(scene: Scene) -> None:
    scene.api.behave(error_rate=1.0, error_status=429, retry_after_format="seconds", retry_after=0)
    orders = ids(50)
    await scene.enqueue(*orders)

    async with scene.worker(max_attempts=1) as worker:
        await eventually(lambda: _asked(scene, 20))
        await throughout(8.0, lambda: asyncio.sleep(0))

        # Those that were in flight together, and a handful of single ones.
        assert scene.api.stats().requests <= 35
        assert worker.metric("ingest_orders_total", outcome="dead") == 0
        scene.api.behave(error_rate=0.0)
        await all_stored_at_the_first_attempt(scene, orders)


async def test_workers_that_share_a_quota_come_near_to_it_and_few_requests_are_refused(scene: Scene) -> None:
    scene.api.behave(latency="0.02", rate_limit=20, retry_after=1)
    await scene.enqueue(*ids(5_000))

    async with AsyncExitStack() as stack:
        for name in "abcd":
            await stack.enter_async_context(scene.worker(name))
        await throughout(25.0, lambda: asyncio.sleep(0.1))
        scene.api.reset_stats()
        await throughout(15.0, lambda: nothing_is_dead(scene))
        by_status = scene.api.stats().by_status

    answered, refused = by_status["200"], by_status.get("429", 0)
    assert refused < 0.2 * (answered + refused)
    assert answered > 0.5 * 20 * 15


async def test_after_an_outage_the_api_is_asked_for_more_step_by_step(scene: Scene) -> None:
    scene.api.behave(error_rate=1.0)
    await scene.enqueue(*ids(400))

    async with scene.worker(concurrency=100) as worker:
        await eventually(lambda: _is(worker.metric("ingest_circuit_open") == 1))
        await eventually(lambda: _is(worker.metric("ingest_in_flight") <= 1))
        peaks: list[int] = []
        scene.api.behave(error_rate=0.0, latency="0.3")
        scene.api.reset_stats()

        async def ramped_up() -> bool:
            if (concurrency := scene.api.stats().concurrency) not in peaks:
                peaks.append(concurrency)
            return concurrency >= 60

        await eventually(ramped_up, every=0.005)
        await nothing_is_blamed(scene)
        await all_stored_at_the_first_attempt(scene, ids(400))

    assert [peak for peak in peaks if 2 <= peak <= 12], "not all at once"
    assert [peak for peak in peaks if 12 < peak <= 40]


# -- the ways out that docs/how-to/alerts.md names ----------------------------------------------------------------------


@asynccontextmanager
async def api_that_always_refuses(refused: str) -> AsyncIterator[str]:
    """One order is always throttled; the others are served."""

    async def answer(order_id: str) -> web.Response:
        if order_id == refused:
            return web.Response(status=429, headers={"Retry-After": "3"})
        await asyncio.sleep(0.02)
        return served(order_id)

    async with api(answer) as url:
        yield url


async def test_an_order_that_is_always_throttled_can_be_dead_lettered_by_hand(scene: Scene) -> None:
    orders = ids(3_000)
    await scene.enqueue(*orders)

    async with api_that_always_refuses("order-50") as url, scene.worker(upstream_url=url, max_attempts=1):
        with closing_cli({**os.environ, "INGEST_REDIS_URL": scene.redis_url, "INGEST_STREAM": scene.queue}) as cli:
            await eventually(lambda: _listed(cli))
            await eventually(lambda: _dead_lettered(cli))
        await scene.finished()

    (dead,) = await scene.dead()
    assert (dead["order_id"], dead["reason"], dead["attempts"]) == ("order-50", "attempts_exhausted", "0")
    assert "HTTP 429" in dead["error"]
    assert_right(await scene.rows(), [order_id for order_id in orders if order_id != "order-50"])


async def test_with_a_rule_for_429_an_order_that_is_always_throttled_slows_down_no_other(scene: Scene) -> None:
    orders = ids(3_000)
    await scene.enqueue(*orders)

    async with (
        api_that_always_refuses("order-50") as url,
        scene.worker(upstream_url=url, upstream_status="429=retry:1s", max_attempts=4) as worker,
    ):
        await scene.finished()

        assert worker.metric("ingest_retries_total", reason="throttled") == 0
    (dead,) = await scene.dead()
    assert (dead["order_id"], dead["reason"], dead["attempts"]) == ("order-50", "attempts_exhausted", "4")
    assert_right(await scene.rows(), [order_id for order_id in orders if order_id != "order-50"])


async def _listed(cli: Cli) -> bool:
    listed = await asyncio.to_thread(cli.run, "retries", "list", "--reason", "throttled")
    return "order-50" in listed.stdout


async def _dead_lettered(cli: Cli) -> bool:
    moved = await asyncio.to_thread(cli.run, "retries", "dead-letter", "order-50")
    return "no retry matches" not in moved.stdout


async def nothing_is_dead(scene: Scene) -> None:
    assert await scene.dead() == []


async def _asked(scene: Scene, count: int) -> bool:
    return scene.api.stats().requests >= count


async def _is(value: bool) -> bool:  # noqa: FBT001  to await what is known
    return value
