"""A backfill is killed at each moment of a page, and another process finishes it without leaving an order out.

`INGEST_TEST_BACKFILL` sets the number of orders of the shop.
"""

import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from acceptance.commands import closing_workers
from crash.killed import JOB_VICTIM, run_until_killed
from integration.scene import Scene
from shop_source import ShopSource, shop_source
from support import Cli, eventually

ORDERS = int(os.environ.get("INGEST_TEST_BACKFILL", "120"))
SIZE = max(20, ORDERS // 50)


@pytest.fixture
async def shop(scene: Scene, tmp_path: Path) -> AsyncIterator[ShopSource]:
    async with shop_source(scene, tmp_path, orders=ORDERS, size=SIZE) as shop:
        yield shop


@pytest.mark.parametrize(
    "moment", ["before_enqueue", "after_enqueue", "before_record", "after_record", "before_end", "after_end"]
)
async def test_a_backfill_killed_at_any_moment_is_continued_and_leaves_no_order_out(
    cli: Cli, env: dict[str, str], shop: ShopSource, moment: str
) -> None:
    own = {**env, **shop.env}
    with closing_workers(cli, dict(shop.env)) as workers:
        workers.start()
        await run_until_killed(JOB_VICTIM, "backfill", moment, "3", env=own, timeout=200)
        [[state]] = await shop.scene.sql("SELECT state FROM jobs")
        assert state == ("done" if moment == "after_end" else "active")
        if moment != "after_end":
            # The process looks dead when its lease has expired. A worker continues the backfill.
            await shop.scene.sql("UPDATE jobs SET leased_until = clock_timestamp()")

        async def is_done() -> bool:
            [[state, listed]] = await shop.scene.sql("SELECT state, listed FROM jobs")
            return state == "done" and listed >= ORDERS

        await eventually(is_done)

        async def are_stored() -> bool:
            return await shop.stored() == set(shop.order_ids())

        await eventually(are_stored)

    # At most the orders of the interrupted page were fetched twice.
    fetches = sum(shop.shop.state.fetches.values())
    assert ORDERS <= fetches <= ORDERS + 2 * SIZE


async def test_a_backfill_that_kills_its_process_each_time_fails_and_other_orders_are_processed(
    cli: Cli, env: dict[str, str], shop: ShopSource
) -> None:
    for _ in range(5):
        await run_until_killed(JOB_VICTIM, "backfill", "before_enqueue", "1", env={**env, **shop.env}, timeout=200)
        await shop.scene.sql("UPDATE jobs SET leased_until = clock_timestamp()")

    with closing_workers(cli, dict(shop.env)) as workers:
        workers.start()

        async def has_ended() -> bool:
            [[state]] = await shop.scene.sql("SELECT state FROM jobs")
            return state != "active"

        await eventually(has_ended)
        live = shop.order_ids()[0]
        await shop.scene.enqueue(live)

        async def is_stored() -> bool:
            return live in await shop.stored()

        await eventually(is_stored)

    [[state, error]] = await shop.scene.sql("SELECT state, error FROM jobs")
    assert (state, error) == ("failed", "5 processes have died or stalled while they ran it")
    assert await shop.stored() == {live}
