"""The console's frame in a real browser: login, live data, themes, and the pages about sources, workers, settings and audit."""

from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from browser import planted
from browser.conftest import Visit
from browser.deployment import CALM, HOSTILE, Deployment
from browser.visitor import PATIENCE, Visitor
from integration.site import serving_routes

SignIn = Callable[..., Awaitable[Visitor]]
PAGES = {
    "overview": "/console/",
    "sources": "/console/sources",
    "source": f"/console/sources/show?source={CALM}",
    "workers": "/console/workers",
    "audit": "/console/audit",
    "settings": "/console/settings?all=1",
    "help": "/console/help",
}
_WITHIN = 1000 * PATIENCE


async def control(visitor: Visitor, action: str, source: str, reason: str = "") -> None:
    """Pause or resume a source by its page."""
    await visitor.goto(f"/console/sources/{action}?source={source}")
    if reason:
        await visitor.fill("Reason", reason)
    await visitor.press(action.capitalize())


async def test_a_login_by_keyboard_leads_to_the_wanted_page_and_a_logout_ends_it(
    deployment: Deployment, visit: Visit
) -> None:
    async with visit() as visitor:
        await visitor.goto("/console/help")
        await visitor.in_each_size("login")
        await visitor.page.reload()
        await visitor.page.get_by_label("API key").fill("ingest_wrong")
        await visitor.press("Log in")
        assert "not an API key" in await visitor.page.inner_text("[role=alert]")
        visitor.problems.clear()

        await visitor.fill("API key", deployment.keys["read"])
        await visitor.press("Log in")
        assert visitor.page.url.endswith("/console/help")
        await visitor.press("Log out")
        await visitor.goto("/console/help")
        assert await visitor.page.inner_text("h1") == "Log in"
        assert visitor.problems == []


@pytest.mark.parametrize("name", PAGES)
async def test_a_page_fits_each_size_in_both_themes_and_is_accessible(signed_in: SignIn, name: str) -> None:
    visitor = await signed_in("operate")

    await visitor.goto(PAGES[name])
    await visitor.in_each_size(name)

    await visitor.tab_to("Skip to content")
    assert await visitor.violations() == []


async def test_every_page_is_readable_without_javascript(deployment: Deployment, visit: Visit) -> None:
    async with visit(scripts=False) as visitor:
        await visitor.sign_in(deployment.keys["read"])
        for name in ("overview", "sources", "workers", "settings"):
            await visitor.goto(PAGES[name])
            assert await visitor.page.locator("tbody tr").count() > 0, name
        assert visitor.problems == []


async def test_live_data_follow_without_a_reload_and_keep_the_focus(signed_in: SignIn) -> None:
    visitor = await signed_in("operate")
    await visitor.goto("/console/sources")
    await visitor.tab_to(CALM)
    row = visitor.page.get_by_role("row").filter(has_text=CALM)

    other = await signed_in("operate")
    await control(other, "pause", CALM, reason="sale <b>today</b>")
    await row.get_by_text("paused", exact=True).wait_for(timeout=_WITHIN)
    notice = visitor.page.locator(".notice").filter(has_text=CALM)
    assert "sale <b>today</b>" in await notice.inner_text()
    focused = await visitor.focused()
    assert focused is not None
    assert focused["name"] == CALM
    await control(other, "resume", CALM)
    await row.get_by_text("idle", exact=True).wait_for(timeout=_WITHIN)


async def test_an_open_page_leads_to_the_login_when_the_session_has_ended(signed_in: SignIn) -> None:
    visitor = await signed_in("read")
    await visitor.goto("/console/")

    await visitor.page.context.clear_cookies()
    # A page that was hidden opens its stream again.
    async with visitor.page.expect_navigation(url="**/console/login?next=*", timeout=_WITHIN):
        for is_hidden in ("true", "false"):
            await visitor.page.evaluate(
                f"Object.defineProperty(document, 'hidden', {{ value: {is_hidden}, configurable: true }});"
                "document.dispatchEvent(new Event('visibilitychange'))"
            )

    visitor.problems.clear()  # the stream that was denied


async def test_the_audit_page_filters_what_operators_have_changed(signed_in: SignIn) -> None:
    visitor = await signed_in("operate")
    for action in ("pause", "resume"):
        await control(visitor, action, HOSTILE)

    await visitor.goto("/console/audit")
    await visitor.fill("Action", "resume")
    async with visitor.page.expect_navigation():
        await visitor.page.keyboard.press("Enter")

    cells = await visitor.page.locator("tbody tr td:nth-child(4)").all_inner_texts()
    assert set(cells) == {"resume"}


async def test_a_chosen_theme_stays_and_needs_no_script(deployment: Deployment, visit: Visit) -> None:
    async with visit(scripts=False, theme="light") as visitor:
        await visitor.sign_in(deployment.keys["read"])
        await visitor.press("Dark")
        await visitor.goto("/console/help")

        assert await visitor.page.locator("html").get_attribute("data-theme") == "dark"


async def test_a_link_from_another_site_keeps_the_session(deployment: Deployment, signed_in: SignIn) -> None:
    async def chat(_: web.Request) -> web.Response:
        link = (
            f'<!doctype html><link rel="icon" href="data:,"><a href="{deployment.url}/console/workers">look at this</a>'
        )
        return web.Response(text=link, content_type="text/html")

    visitor = await signed_in("read")
    async with serving_routes({"/chat": chat}) as url:
        # Another site for the browser, although the same server.
        await visitor.page.goto(url.replace("127.0.0.1", "localhost") + "/chat")
        await visitor.page.get_by_text("look at this").click()
        await visitor.page.get_by_role("heading", name="Workers").wait_for(timeout=_WITHIN)


async def test_texts_of_a_shop_stay_texts_on_the_pages_of_sources(signed_in: SignIn) -> None:
    visitor = await signed_in("operate")

    for path in ("/console/", "/console/sources", f"/console/sources/show?source={HOSTILE}", "/console/audit"):
        await visitor.goto(path)
        await planted.assert_inert(visitor)
