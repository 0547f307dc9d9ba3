"""The console's pages about orders: find, list, refetch and erase them, with live workers behind."""

from collections.abc import Awaitable, Callable

from browser import planted
from browser.conftest import Visit
from browser.deployment import CALM, HOSTILE, HOSTILE_IDS, Deployment
from browser.visitor import Visitor
from support import eventually
from yarl import URL

SignIn = Callable[..., Awaitable[Visitor]]
# Each test uses its own orders. The simulated API serves all of them.
LISTED = ("536400", "536401", "536402")
ERASED = ("536415", "536416")
REFETCHED = "536420"
WRONG = ("536437", "536438")
PREVIEWED_ALONE = "536446"
PREVIEWED = ("536441", "536445")


def address(path: str, **query: str) -> str:
    return str(URL(f"/console{path}").with_query(query))


async def test_an_operator_finds_lists_and_opens_orders_by_keyboard(deployment: Deployment, signed_in: SignIn) -> None:
    await deployment.enqueue(CALM, *LISTED)
    await deployment.finished(CALM)
    visitor = await signed_in("operate")

    await visitor.goto(address("/orders", source=CALM, prefix="53640"))
    assert await visitor.page.locator("tbody tr").count() == len(LISTED)
    await visitor.in_each_size("orders")
    await visitor.press(LISTED[1])
    assert "Order 536401" in await visitor.page.inner_text("h1")
    await visitor.in_each_size("order")
    await visitor.press("Document")
    assert f'"id": "{LISTED[1]}"' in await visitor.page.inner_text("pre")
    await visitor.assert_accessible()


async def test_a_reader_sees_masked_customers_no_actions_and_no_documents(deployment: Deployment, visit: Visit) -> None:
    await deployment.enqueue(CALM, LISTED[0])
    await deployment.finished(CALM)
    async with visit() as visitor:
        await visitor.sign_in(deployment.keys["read"])
        await visitor.goto(address("/orders/show", source=CALM, id=LISTED[0]))
        text = await visitor.page.inner_text("main")
        response = await visitor.page.goto(deployment.url + address("/orders/document", source=CALM, id=LISTED[0]))

    assert "13…" in text
    assert "13448" not in text
    assert not any(action in text for action in ("Fetch again", "Erase", "Document"))
    assert response is not None
    assert response.status == 403


async def test_an_order_is_fetched_again(deployment: Deployment, signed_in: SignIn) -> None:
    scene = deployment.scenes[CALM]
    await deployment.enqueue(CALM, REFETCHED)
    await deployment.finished(CALM)
    visitor = await signed_in("operate")
    await visitor.goto(address("/orders/show", source=CALM, id=REFETCHED))
    fetched = "SELECT fetched_at FROM orders WHERE source = $1 AND order_id = $2"
    before = (await scene.sql(fetched, CALM, REFETCHED))[0][0]

    await visitor.press("Fetch again…")
    await visitor.press("Fetch again")

    async def is_fetched() -> bool:
        return bool((await scene.sql(fetched, CALM, REFETCHED))[0][0] > before)

    assert "Enqueued 1 order" in await visitor.page.inner_text("[role=status]")
    await eventually(is_fetched)


async def test_the_orders_of_a_filter_are_remapped_and_fetched_again(deployment: Deployment, signed_in: SignIn) -> None:
    scene = deployment.scenes[CALM]
    await deployment.enqueue(CALM, *WRONG)
    await deployment.finished(CALM)
    status = "UPDATE orders SET status = 'wrong' WHERE source = $1 AND order_id = ANY ($2::text[])"
    await scene.sql(status, CALM, [*WRONG])
    visitor = await signed_in("operate")

    await visitor.goto(address("/orders", source=CALM, prefix=WRONG[0][:5], status="wrong"))
    await visitor.press("Remap all matching…")
    assert "2 would change" in await visitor.page.inner_text("[role=status]")
    assert ["status", "2", WRONG[0], "wrong", "placed"] == await visitor.page.locator("tbody tr > *").all_inner_texts()
    await visitor.in_each_size("remap")
    # Counting may take too long on a slow machine.
    await visitor.press("Remap (2|many) orders")
    await visitor.page.locator("[data-live] .badge.good", has_text="done").wait_for()
    rows = await scene.sql(
        "SELECT status FROM orders WHERE source = $1 AND order_id = ANY ($2::text[])", CALM, [*WRONG]
    )
    assert [row["status"] for row in rows] == ["placed"] * 2

    await scene.sql(status, CALM, [*WRONG])
    await visitor.goto(address("/orders/enqueue", source=CALM, status="wrong"))
    await visitor.press("Fetch again (2|many) orders")

    async def is_mended() -> bool:
        return not await scene.sql("SELECT FROM orders WHERE source = $1 AND status = 'wrong'", CALM)

    await eventually(is_mended)


async def test_the_orders_of_a_filter_are_previewed_and_fetched_again(deployment: Deployment, visit: Visit) -> None:
    scene = deployment.scenes[CALM]
    await deployment.enqueue(CALM, *PREVIEWED)
    await deployment.finished(CALM)
    change = "UPDATE orders SET status = 'previewed' WHERE source = $1 AND order_id = ANY ($2::text[])"
    await scene.sql(change, CALM, [*PREVIEWED])
    unchanged = "SELECT count(*) FROM orders WHERE source = $1 AND status = 'previewed'"
    async with visit() as visitor:
        await visitor.sign_in(deployment.keys["operate"])
        await visitor.goto(address("/orders/enqueue", source=CALM, status="previewed"))
        await visitor.press("Preview the differences")
        await visitor.page.get_by_text("Of 2 fetched now, 2 would change.").wait_for()
        shown = visitor.page.url
        fields = await visitor.page.locator("tbody tr > *").all_inner_texts()
        await visitor.in_each_size("preview")
        await visitor.assert_accessible()
        before = (await scene.sql(unchanged, CALM))[0][0]

        async with visit() as reader:
            await reader.sign_in(deployment.keys["read"])
            await reader.goto(shown.removeprefix(deployment.url))
            read = await reader.page.inner_text("main")

        await visitor.press("Fetch again")
        await visitor.page.locator("[data-live] .badge.good", has_text="done").wait_for()

        async def are_fetched() -> bool:
            return not (await scene.sql(unchanged, CALM))[0][0]

        await eventually(are_fetched)

    assert fields == ["status", "2", PREVIEWED[0], "previewed", "placed"]
    assert before == 2
    assert "Fields that would change" in read
    assert not any(hidden in read for hidden in ("placed", "Fetch again", "Begin again"))


async def test_one_order_is_previewed_and_fetched_again(deployment: Deployment, signed_in: SignIn) -> None:
    scene, order_id = deployment.scenes[CALM], PREVIEWED_ALONE
    await deployment.enqueue(CALM, order_id)
    await deployment.finished(CALM)
    status = "SELECT status FROM orders WHERE source = $1 AND order_id = $2"
    await scene.sql("UPDATE orders SET status = 'alone' WHERE source = $1 AND order_id = $2", CALM, order_id)
    visitor = await signed_in("operate")

    await visitor.goto(address("/orders/show", source=CALM, id=order_id))
    await visitor.press("Fetch again…")
    await visitor.press("Preview the differences")
    await visitor.page.get_by_text("Of 1 fetched now, 1 would change.").wait_for()
    await visitor.press("Fetch again")
    assert "Enqueued 1 order" in await visitor.page.locator("[role=status]").first.inner_text()

    async def is_fetched() -> bool:
        return (await scene.sql(status, CALM, order_id))[0][0] == "placed"

    await eventually(is_fetched)


async def test_the_orders_of_a_customer_are_erased_after_a_preview(deployment: Deployment, signed_in: SignIn) -> None:
    scene = deployment.scenes[CALM]
    await deployment.enqueue(CALM, *ERASED)
    await deployment.finished(CALM)
    visitor = await signed_in("erase")

    await visitor.goto(address("/orders", source=CALM, prefix="53641"))
    await visitor.press("Erase all matching…")
    assert "Erase 2 orders" in await visitor.page.inner_text("h1")
    assert (await scene.sql("SELECT count(*) FROM erased_orders WHERE source = $1", CALM))[0][0] == 0
    await visitor.assert_accessible()
    await visitor.press("Erase for good")

    assert "removed 2 rows" in await visitor.page.inner_text("[role=status]")
    await visitor.goto(address("/orders/show", source=CALM, id=ERASED[0]))
    assert "erased" in await visitor.page.inner_text("h1")
    rows = await scene.sql("SELECT actor FROM audit_log WHERE action = 'orders.erase' AND phase = 'done'")
    assert [row["actor"] for row in rows] == ["erase"]


async def test_scripts_in_every_field_of_an_order_stay_text(signed_in: SignIn) -> None:
    visitor = await signed_in("operate")
    paths = [address("/orders", source=HOSTILE)]
    paths += [address("/orders/show", source=HOSTILE, id=order_id) for order_id in HOSTILE_IDS]
    paths += [address("/orders/document", source=HOSTILE, id=HOSTILE_IDS[0])]

    for path in paths:
        await visitor.goto(path)
        await planted.assert_inert(visitor)
    await planted.assert_policy_blocks(visitor, paths[0])
