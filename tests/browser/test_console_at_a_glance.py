"""The console at first sight, on a desk and on a phone: the last hour, trouble, and the way to every section."""

from collections.abc import Awaitable, Callable

from browser.deployment import CALM, MOODY, Deployment
from browser.visitor import PATIENCE, Visitor
from support import eventually
from yarl import URL

SignIn = Callable[..., Awaitable[Visitor]]
PHONE = 390
LATER, NOWHERE = ("536530", "536531"), "536540"
# The top and the right edge of each element, in pixels.
_EDGES = "elements => elements.map(each => each.getBoundingClientRect()).map(box => [Math.round(box.top), box.right])"
_LABELS = "cells => cells.map(cell => getComputedStyle(cell, '::before').content)"


def address(path: str, **query: str) -> str:
    return str(URL(f"/console{path}").with_query(query))


async def test_the_overview_begins_with_the_orders_of_the_last_hour(deployment: Deployment, signed_in: SignIn) -> None:
    visitor = await signed_in("read")
    await visitor.goto("/console/")
    stored = visitor.page.locator(".history .stat").filter(has_text="Stored")

    await deployment.enqueue(CALM, LATER[0])
    await deployment.finished(CALM)

    async def is_counted() -> bool:
        shown = await stored.locator(".value").inner_text()
        return shown.isdigit() and int(shown) > 0 and await stored.locator("path").last.get_attribute("d") != ""

    await eventually(is_counted)
    assert "Highest in a minute: " in str(await stored.get_by_role("img").get_attribute("aria-label"))
    await visitor.page.get_by_role("link", name="Last 24 hours").click()
    assert "Highest in 24 minutes: " in str(await stored.get_by_role("img").get_attribute("aria-label"))


async def test_a_source_in_trouble_is_first_and_its_notice_calms(deployment: Deployment, signed_in: SignIn) -> None:
    visitor, control = await signed_in("read"), await signed_in("operate")
    pauses = len(deployment.worker.events("source_paused", source=MOODY))
    await control.goto(address("/sources/pause", source=MOODY))
    await control.press("Pause")
    try:
        await eventually(lambda: len(deployment.worker.events("source_paused", source=MOODY)) > pauses)
        await deployment.enqueue(MOODY, "waits-1", "waits-2")
        await visitor.goto("/console/")
        notice = visitor.page.locator(".notice").filter(has_text="paused by operate")
        await notice.get_by_text("2 orders wait, and none is lost.").wait_for(timeout=1000 * PATIENCE)

        assert "(for " in await notice.inner_text()
        assert await notice.get_by_role("link", name=MOODY).count() == 1
        assert await visitor.page.locator("tbody th").first.inner_text() == MOODY
        await visitor.in_each_size("trouble")
        await notice.get_by_role("link", name="Paused").click()
        assert visitor.page.url.endswith("/console/help#paused")
    finally:
        await control.goto(address("/sources/resume", source=MOODY))
        await control.press("Resume")
    await deployment.finished(MOODY)


async def test_a_phone_reaches_all_sections_and_the_theme_and_shows_tables_as_cards(signed_in: SignIn) -> None:
    visitor = await signed_in("operate", width=PHONE)
    await visitor.goto("/console/")
    links = visitor.page.get_by_role("navigation", name="Sections").get_by_role("link")
    names = await links.all_inner_texts()

    assert len(names) == 10
    assert all(0 < right <= PHONE for _, right in await links.evaluate_all(_EDGES))
    cells = visitor.page.locator("tbody tr:first-child > *")
    assert all(right <= PHONE for _, right in await cells.evaluate_all(_EDGES))
    assert (await cells.evaluate_all(_LABELS))[:3] == ['"Source"', '"State"', '"Waiting"']
    for name in names:
        await links.filter(has_text=name).click()
        assert name in await visitor.page.inner_text("h1")
    await visitor.page.get_by_role("button", name="Dark").click()
    assert await visitor.page.locator("html").get_attribute("data-theme") == "dark"


async def test_no_card_is_alone_in_its_row(signed_in: SignIn) -> None:
    visitor = await signed_in("read")
    for path in ("/console/", address("/sources/show", source=CALM)):
        await visitor.goto(path)
        for width in (PHONE, 768, 1440):
            await visitor.page.set_viewport_size({"width": width, "height": 900})
            tops = [top for top, _ in await visitor.page.locator(".stat").evaluate_all(_EDGES)]
            assert len(tops) == 8
            assert all(tops.count(top) > 1 for top in tops), (path, width, tops)


async def test_an_unknown_address_and_a_missing_permission_keep_the_navigation(
    deployment: Deployment, signed_in: SignIn
) -> None:
    visitor = await signed_in("read")

    for path, title in (("/nowhere", "Not found"), ("/sources/pause", "Not permitted")):
        await visitor.page.goto(f"{deployment.url}/console{path}")
        assert await visitor.page.inner_text("h1") == title
        await visitor.press("Orders")
        assert await visitor.page.inner_text("h1") == "Orders"

    visitor.problems.clear()


async def test_an_order_that_is_nowhere_is_enqueued_from_its_page_and_is_then_first_in_the_list(
    deployment: Deployment, signed_in: SignIn
) -> None:
    await deployment.enqueue(CALM, LATER[1])
    await deployment.finished(CALM)
    visitor = await signed_in("operate")
    await visitor.page.goto(deployment.url + address("/orders/show", id=NOWHERE))
    await visitor.in_each_size("nowhere")
    visitor.problems.clear()

    await visitor.page.get_by_label("Source").select_option(CALM)
    await visitor.press("Enqueue it…")
    await visitor.press("Enqueue")
    await deployment.finished(CALM)

    await visitor.goto(address("/orders", source=CALM))
    rows = await visitor.page.locator("tbody th").all_inner_texts()
    assert rows.index(NOWHERE) < rows.index(LATER[1])
