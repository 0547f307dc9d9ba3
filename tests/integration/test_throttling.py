"""An order that the API always throttles: the ways out that docs/operate/alerts.md names."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from integration.scene import Scene, assert_right, document, ids
from integration.site import serving_routes
from support import Cli, closing_cli, eventually

pytestmark = pytest.mark.long


@asynccontextmanager
async def api_that_always_refuses(refused: str) -> AsyncIterator[str]:
    """One order is always throttled, and the others are served."""

    async def answer(request: web.Request) -> web.Response:
        order_id = request.match_info["order_id"]
        if order_id == refused:
            return web.Response(status=429, headers={"Retry-After": "3"})
        await asyncio.sleep(0.02)
        return web.Response(body=document(order_id), content_type="application/json")

    async with serving_routes({"/orders/{order_id}": answer}) as url:
        yield url + "/orders/{order_id}"


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
