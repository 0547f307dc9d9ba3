"""The console's pages about dead letters, retries and jobs, with live workers behind."""

import re
from collections.abc import Awaitable, Callable

from browser import planted
from browser.conftest import Visit
from browser.deployment import CALM, HOSTILE, MOODY, Deployment
from browser.visitor import Visitor
from dead_letter_entries import dead_fields
from integration.scene import Scene, document
from support import eventually
from yarl import URL

SignIn = Callable[..., Awaitable[Visitor]]
MANY = 30


def address(path: str, **query: str) -> str:
    return str(URL(f"/console{path}").with_query(query))


async def missing(deployment: Deployment, *order_ids: str) -> None:
    """Enqueue orders that the calm shop does not have, and wait until they are dead letters."""
    scene = deployment.scenes[CALM]
    for order_id in order_ids:
        scene.api.delete_order(order_id)
    await deployment.enqueue(CALM, *order_ids, f"found-with-{order_ids[0]}")

    async def are_dead() -> bool:
        return {*order_ids} <= {entry["order_id"] for entry in await scene.dead()}

    await eventually(are_dead)


async def job_is_done(visitor: Visitor) -> None:
    """Wait until the page of a job shows, without a reload, that it is done."""
    await visitor.page.locator("[data-live] .badge.good", has_text="done").wait_for()


async def is_stored(scene: Scene, source: str, *order_ids: str) -> bool:
    query = "SELECT count(*) FROM orders WHERE source = $1 AND order_id = ANY ($2::text[])"
    return bool((await scene.sql(query, source, [*order_ids]))[0][0] == len(order_ids))


async def test_a_group_of_dead_letters_is_replayed_by_keyboard(deployment: Deployment, signed_in: SignIn) -> None:
    scene, ids = deployment.scenes[CALM], ["gone-1", "gone-2"]
    await missing(deployment, *ids)
    for order_id in ids:
        scene.api.put_order(order_id, document(order_id))
    visitor = await signed_in("operate")

    await visitor.goto(address("/dead-letters", source=CALM))
    await visitor.in_each_size("dead-letters")
    await visitor.press("HTTP 404")
    assert await visitor.page.locator("tbody tr").count() == len(ids)
    await visitor.press("Replay all matching…")
    await visitor.in_each_size("replay")
    await visitor.press("Replay 2")

    await job_is_done(visitor)
    await visitor.assert_accessible()
    await eventually(lambda: is_stored(scene, CALM, *ids))
    assert not [entry for entry in await scene.dead() if entry["order_id"] in ids]


async def test_only_chosen_dead_letters_are_dropped(deployment: Deployment, signed_in: SignIn) -> None:
    scene, ids = deployment.scenes[CALM], ["drop-1", "drop-2", "drop-3"]
    await missing(deployment, *ids)
    visitor = await signed_in("operate")
    await visitor.goto(address("/dead-letters", source=CALM, text="drop-"))

    for order_id in ids[:2]:
        await visitor.page.get_by_label(f"Select {order_id}").check()
    await visitor.press("Drop selected…")
    await visitor.press("Drop 2")
    await job_is_done(visitor)

    assert [entry["order_id"] for entry in await scene.dead() if entry["order_id"] in ids] == ids[2:]
    rows = await scene.sql("SELECT actor, count FROM audit_log WHERE action = 'dead_letters.drop' AND phase = 'done'")
    assert [tuple(row) for row in rows] == [("operate", 2)]


async def test_dead_letters_are_counted_while_the_preview_is_open_and_downloaded(
    deployment: Deployment, signed_in: SignIn
) -> None:
    scene = deployment.scenes[MOODY]
    for number in range(MANY):
        await scene.redis.xadd(scene.keys.dead, dead_fields(f"csv-{number}", "rejected", error=f"HTTP 400 {number}"))  # type: ignore[arg-type]
    visitor = await signed_in("operate")

    await visitor.goto(address("/dead-letters", source=MOODY, text="csv-"))
    async with visitor.page.expect_download() as downloading:
        await visitor.page.get_by_text("Download as CSV").click()
    text = (await (await downloading.value).path()).read_text()
    await visitor.goto(address("/dead-letters/drop", source=MOODY, reason="rejected"))

    assert text.count("csv-") == MANY
    await visitor.page.get_by_role("button", name=f"Drop {MANY}").wait_for()


async def test_a_group_of_dead_letters_is_exported_by_keyboard_and_downloaded(
    deployment: Deployment, signed_in: SignIn
) -> None:
    scene = deployment.scenes[MOODY]
    entries = [
        await scene.redis.xadd(scene.keys.dead, dead_fields(f"export-{number}", "rejected", error="HTTP 451"))  # type: ignore[arg-type]
        for number in range(MANY)
    ]
    visitor = await signed_in("operate")

    await visitor.goto(address("/dead-letters", source=MOODY, text="export-"))
    await visitor.press("Export all matching…")
    await visitor.in_each_size("export")
    await visitor.page.get_by_label("Format").select_option("csv")
    await visitor.press(f"Export {MANY}")
    await job_is_done(visitor)
    await visitor.assert_accessible()
    await visitor.assert_fits()
    async with visitor.page.expect_download() as downloading:
        await visitor.page.get_by_role("link", name="Download the file").click()
    download = await downloading.value
    text = (await download.path()).read_text()

    assert download.suggested_filename.endswith(".csv")
    assert text.startswith("id,source,order_id,")
    assert [text.count(f",export-{number},") for number in range(MANY)] == [1] * MANY
    await scene.redis.xdel(scene.keys.dead, *entries)
    viewer = await signed_in("read")
    await viewer.goto(address("/jobs"))
    await viewer.page.get_by_text("Export dead letters").first.wait_for()
    await viewer.page.get_by_role("link", name=re.compile("^[0-9]+$")).first.click()
    await viewer.page.get_by_text("File kept until").wait_for()
    assert await viewer.page.get_by_role("link", name="Download the file").count() == 0


async def test_retries_run_now(deployment: Deployment, signed_in: SignIn) -> None:
    scene = deployment.scenes[MOODY]
    scene.api.behave(breaking_id="late-1", error_status=500)
    try:
        # Its next attempt but one would be due in minutes.
        await scene.add(order_id="late-1", attempt="8")
        await deployment.enqueue(MOODY, "punctual-1")

        async def waits() -> bool:
            return bool(await scene.redis.zcard(scene.keys.retry))

        await eventually(waits)
    finally:
        scene.api.behave(breaking_id=None)
    visitor = await signed_in("operate")

    await visitor.goto(address("/retries", source=MOODY))
    await visitor.assert_accessible()
    await visitor.press("Run all matching now…")
    await visitor.press("Run now 1")
    await job_is_done(visitor)

    await eventually(lambda: is_stored(scene, MOODY, "late-1"))


async def test_each_further_page_fits_a_phone_and_is_accessible(deployment: Deployment, signed_in: SignIn) -> None:
    scene = deployment.scenes[HOSTILE]
    entry_id = (await scene.redis.xrange(scene.keys.dead, count=1))[0][0].decode()
    visitor = await signed_in("erase", width=360)
    paths = [
        address("/jobs"),
        address("/retries"),
        address("/dead-letters/show", source=HOSTILE, id=entry_id),
        address("/dead-letters/replay", source=HOSTILE, id=entry_id),
        address("/orders/erase"),
        address("/orders/enqueue", source=CALM),
        address("/sources/backfills", source=CALM),
        address("/sources/resume"),
        address("/sources/tune", source=MOODY),
    ]

    for at, path in enumerate(paths):
        await visitor.goto(path)
        await visitor.assert_fits()
        # The others are made of the same parts.
        if at % 2 == 0:
            await visitor.assert_accessible()


async def test_dead_letters_are_replayed_without_javascript(deployment: Deployment, visit: Visit) -> None:
    scene = deployment.scenes[CALM]
    await missing(deployment, "plain-1")
    scene.api.put_order("plain-1", document("plain-1"))
    async with visit(scripts=False) as visitor:
        await visitor.sign_in(deployment.keys["operate"])
        await visitor.goto(address("/dead-letters", source=CALM, text="plain-1"))
        await visitor.page.get_by_text("Replay all matching…").click()
        await visitor.page.get_by_role("button", name="Replay 1").click()
        await visitor.page.get_by_text("Requested by").wait_for()

    await eventually(lambda: is_stored(scene, CALM, "plain-1"))


async def test_scripts_in_errors_and_fields_of_dead_letters_stay_text(
    deployment: Deployment, signed_in: SignIn
) -> None:
    scene = deployment.scenes[HOSTILE]
    await scene.redis.xadd(
        scene.keys.dead,
        dead_fields(planted.IMAGE, planted.SCRIPT, error=planted.TEMPLATE, worker=planted.IMAGE, origin=planted.LINK),  # type: ignore[arg-type]
    )
    visitor = await signed_in("operate")
    entry_id = (await scene.redis.xrevrange(scene.keys.dead, count=1))[0][0].decode()
    paths = [
        address("/dead-letters"),
        address("/dead-letters", source=HOSTILE),
        address("/dead-letters/show", source=HOSTILE, id=entry_id),
        address("/dead-letters/drop", source=HOSTILE, id=entry_id),
        address("/dead-letters/replay", source=HOSTILE, text=planted.SCRIPT),
    ]

    for path in paths:
        await visitor.goto(path)
        await planted.assert_inert(visitor)
    await scene.redis.xdel(scene.keys.dead, entry_id)
