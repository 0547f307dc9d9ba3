"""The console's actions on sources and workers, and its pages about backfills, with live workers behind."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from browser.deployment import CALM, MOODY, Deployment
from browser.visitor import Visitor
from support import eventually
from yarl import URL

SignIn = Callable[..., Awaitable[Visitor]]


def address(path: str, **query: str) -> str:
    return str(URL(f"/console{path}").with_query(query))


async def is_stored(deployment: Deployment, source: str, order_id: str) -> bool:
    query = "SELECT count(*) FROM orders WHERE source = $1 AND order_id = $2"
    return bool((await deployment.scenes[source].sql(query, source, order_id))[0][0])


@asynccontextmanager
async def undone(visitor: Visitor, path: str, button: str) -> AsyncIterator[None]:
    """Press this button of a page at the end, also after a failure, because all tests share the workers."""
    try:
        yield
    finally:
        await visitor.goto(path)
        async with visitor.page.expect_navigation():
            await visitor.page.get_by_role("button", name=button, exact=True).click()


async def test_a_paused_source_processes_no_order_until_it_is_resumed(
    deployment: Deployment, signed_in: SignIn
) -> None:
    visitor = await signed_in("operate")
    async with undone(visitor, address("/sources/resume", source=CALM), "Resume"):
        await visitor.goto(address("/sources/pause", source=CALM))
        await visitor.in_each_size("pause")
        await visitor.fill("Duration", "10m")
        await visitor.fill("Reason", "a deployment of the shop")
        pauses = len(deployment.worker.events("source_paused", source=CALM))
        await visitor.press("Pause")
        assert "calm paused" in await visitor.page.inner_text("[role=status]")

        await visitor.goto(address("/sources/pause", source=CALM))
        assert "by operate" in await visitor.page.inner_text("tbody")
        # Workers follow within two seconds, and process the orders of other sources.
        await eventually(lambda: len(deployment.worker.events("source_paused", source=CALM)) > pauses)
        await deployment.enqueue(CALM, "held-1")
        await deployment.enqueue(MOODY, "flowing-1")
        await eventually(lambda: is_stored(deployment, MOODY, "flowing-1"))
        assert not await is_stored(deployment, CALM, "held-1")

    await eventually(lambda: is_stored(deployment, CALM, "held-1"))


async def test_the_limits_of_a_source_are_changed_and_reset(signed_in: SignIn) -> None:
    visitor = await signed_in("operate")
    path = address("/sources/tune", source=CALM)
    await visitor.goto(path)
    await visitor.assert_accessible()
    await visitor.fill("Concurrency", "7")
    await visitor.press("Change")

    assert "concurrency 7" in await visitor.page.inner_text("[role=status]")
    await visitor.goto(path)
    assert "Changed by operate" in await visitor.page.inner_text("main")
    await visitor.press("Use the configured limits")
    await visitor.goto(path)
    assert "Changed by" not in await visitor.page.inner_text("main")


async def test_a_drained_process_begins_no_orders_until_it_is_undone(deployment: Deployment, signed_in: SignIn) -> None:
    visitor = await signed_in("operate")
    await visitor.goto(address("/workers"))
    await visitor.press("Drain")
    path = visitor.page.url.partition("/console")[2]
    async with undone(visitor, f"/console{path}", "Undo the drain"):
        await visitor.assert_accessible()
        await visitor.fill("Reason", "a look at its memory")
        await visitor.press("Drain")
        assert "begin no more orders" in await visitor.page.inner_text("[role=status]")
        await eventually(lambda: deployment.worker.events("source_paused", source=MOODY))
        await deployment.enqueue(MOODY, "stranded-1")

        await visitor.goto(f"/console{path}")
        assert "a look at its memory" in await visitor.page.inner_text("main")
        assert not await is_stored(deployment, MOODY, "stranded-1")

    await eventually(lambda: is_stored(deployment, MOODY, "stranded-1"))
