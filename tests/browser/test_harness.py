"""The checks for the tests of the console find every error in a page that contains them all."""

import html
import json
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from aiohttp import web
from browser import planted
from browser.deployment import HOSTILE, HOSTILE_IDS, Deployment
from browser.visitor import Visitor
from integration.site import serving_routes
from playwright.async_api import Browser

POLICY = {"Content-Security-Policy": "default-src 'none'; script-src 'self'"}
ESCAPED = (
    f"<!doctype html><html lang=en><title>t</title><main><h1>Orders</h1><p>{html.escape(planted.SCRIPT)}</p></main>"
)
WRONG = """<!doctype html><html><title></title><img src=/healthz><p style="color: #eee; width: 2000px">pale</p>
<button style="outline: none">Go</button>"""


async def _page(request: web.Request) -> web.Response:
    body = WRONG if request.path == "/wrong" else planted.IMAGE if request.path == "/inserted" else ESCAPED
    headers = {} if request.path in {"/open", "/wrong"} else POLICY
    return web.Response(text=body, content_type="text/html", headers=headers)


@pytest_asyncio.fixture(loop_scope="session")
async def stranger(browser: Browser) -> AsyncIterator[Visitor]:
    async with (
        serving_routes(dict.fromkeys(("/escaped", "/open", "/inserted", "/wrong"), _page)) as url,
        Visitor.open(browser, url, width=360) as stranger,
    ):
        yield stranger


async def test_a_page_that_does_everything_wrong_fails_each_check(stranger: Visitor) -> None:
    await stranger.goto("/wrong")

    with pytest.raises(AssertionError, match="image-alt"):
        await stranger.assert_accessible()
    with pytest.raises(AssertionError, match="scrolls sideways"):
        await stranger.assert_fits()
    with pytest.raises(AssertionError, match="is not visible"):
        await stranger.tab_to("Go")


async def test_a_planted_script_is_found_in_a_page_and_the_policy_of_a_page_is_tried(stranger: Visitor) -> None:
    await stranger.goto("/escaped")
    await planted.assert_inert(stranger)
    await planted.assert_policy_blocks(stranger, "/escaped")

    with pytest.raises(AssertionError, match="ran"):
        await planted.assert_policy_blocks(stranger, "/open")
    await stranger.goto("/inserted")
    with pytest.raises(AssertionError, match="a shop has written"):
        await planted.assert_inert(stranger)


async def test_the_orders_of_the_hostile_shop_are_stored_or_dead_lettered(deployment: Deployment) -> None:
    rows = await deployment.scenes[HOSTILE].sql("SELECT * FROM orders WHERE source = $1", HOSTILE)
    dead = await deployment.scenes[HOSTILE].dead()

    assert {row["order_id"] for row in rows} | {letter["order_id"] for letter in dead} == set(HOSTILE_IDS)
    assert all(row["status"] == planted.SCRIPT for row in rows)
    assert all(json.loads(row["lines"])[0]["sku"] == planted.IMAGE for row in rows)
    assert len(rows) == 3
