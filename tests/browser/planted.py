"""Scripts planted in every field that a shop can fill, and the check that none of them runs."""

import html
import json
from typing import Any

from browser.visitor import Visitor
from playwright.async_api import Route

# Each would run in a page that includes the text without escaping it: as an element, in an attribute, in a script.
SCRIPT = "<script>window.planted='script'</script>"
IMAGE = "\"'><img src=x onerror=\"window.planted='image'\">"
TEMPLATE = "{{7*7}}${7*7}<svg onload=\"window.planted='svg'\">"
LINK = "javascript:window.planted='link'"
TEXTS = (SCRIPT, IMAGE, TEMPLATE, LINK)
_RUNS = ("script", "image", "svg")


def order(order_id: str) -> dict[str, Any]:
    """An order whose texts are scripts, as our own format describes it."""
    return {
        "id": order_id,
        "status": SCRIPT,
        "placed_at": "2026-01-02T03:04:05Z",
        "updated_at": None,
        "currency": "EUR",
        "customer_id": IMAGE,
        "country": TEMPLATE,
        SCRIPT: {IMAGE: [LINK, TEMPLATE]},
        "lines": [{"sku": IMAGE, "description": f"{SCRIPT}{TEMPLATE}{LINK}", "quantity": 1, "unit_price": "2.50"}],
    }


def broken_order(order_id: str) -> dict[str, Any]:
    """An order that no worker can store, with scripts as the names and the values that its error is about."""
    return {**order(order_id), "currency": IMAGE, "placed_at": SCRIPT, "lines": {SCRIPT: TEMPLATE}}


def document(order_id: str) -> bytes:
    """The response of a shop: orders whose ID contains `broken` cannot be stored."""
    made = broken_order if "broken" in order_id else order
    return json.dumps(made(order_id)).encode()


async def assert_inert(visitor: Visitor) -> None:
    """Fail if a planted script has run in the current page, or became an element or a link in it."""
    page = visitor.page
    assert await page.evaluate("window.planted") is None
    made = await page.locator("[onerror], [onload], img[src=x], a[href^='javascript:' i], script:not([src])").count()
    assert made == 0, f"{page.url} contains an element that a shop has written"
    assert await visitor.violations() == []
    assert "49$" not in await page.inner_text("body"), f"{page.url} evaluates a template that a shop has written"


async def assert_policy_blocks(visitor: Visitor, path: str) -> None:
    """Open a page as if it did not escape anything, and fail unless its Content-Security-Policy blocks each script."""

    async def unescape(route: Route) -> None:
        response = await route.fetch()
        # The same headers with the texts of the shop as they are.
        text = await response.text()
        for planted in TEXTS:
            for escaped in (
                html.escape(planted),
                html.escape(planted).replace("&quot;", "&#34;").replace("&#x27;", "&#39;"),
            ):
                text = text.replace(escaped, planted)
        await route.fulfill(response=response, body=text)

    await visitor.page.route(f"**{path}", unescape)
    await visitor.goto(path)
    await visitor.page.wait_for_load_state("load")
    made = await visitor.page.locator("img[src=x], svg[onload], script:not([src])").count()
    assert made > 0, f"{path} shows no text of a shop"
    assert await visitor.page.evaluate("window.planted") is None, f"a script in {path} ran"
    assert any(name.startswith("script-src") for name in await visitor.violations())
    await visitor.page.unroute(f"**{path}", unescape)
    visitor.problems.clear()  # each blocked script is one
