"""An API with a quota: the process waits as it is told, asks for about as much as it may, and blames no order."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from integration.scene import Scene, assert_right, document, ids
from integration.site import serving_routes
from support import Cli, closing_cli, eventually

pytestmark = pytest.mark.long


@asynccontextmanager
async def api(answer: Callable[[str], Awaitable[web.Response]]) -> AsyncIterator[str]:
    """A URL template of an API that gives these answers."""

    async def serve(request: web.Request) -> web.Response:
        return await answer(request.match_info["order_id"])

    async with serving_routes({"/orders/{order_id}": serve}) as url:
        yield url + "/orders/{order_id}"


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
