"""Shops that repeat their webhooks, change an order twice within a second, and lose responses after the request took effect."""

import asyncio
from pathlib import Path

from acceptance.commands import closing_workers, running_api
from acceptance.kind_shops import running_shops, write_sources
from support import Cli, eventually

NAMES = ["bigcommerce", "shopify", "woocommerce"]
REPEATS = 2
CHANGED = 10


async def test_orders_are_stored_in_their_last_version_though_webhooks_repeat_and_replies_are_lost(
    cli: Cli, tmp_path: Path, dsn: str
) -> None:
    cli.forget_api()
    assert cli.run("migrate").returncode == 0
    file = tmp_path / "sources.toml"
    cli.env["INGEST_SOURCES"] = str(file)
    async with running_shops(dsn, NAMES, 50) as shops:
        write_sources(file, shops, "1h")
        with running_api(cli) as api, closing_workers(cli, cli.env) as workers:
            workers.start("--processes", "1")
            receiver = (await api.says("listening"))["url"]
            for shop in shops:
                shop.shop.site.behave(
                    webhooks=f"{receiver}/v1/webhooks/{shop.name}",
                    webhook_repeats=REPEATS,
                    webhook_repeat_after=0.5,
                    lost_replies=1.0,
                )
                state = shop.shop.state
                orders = state.random_orders(CHANGED)
                for order in [*orders, *orders]:
                    state.change(order)
                await eventually(lambda counts=state.counts: counts["lost_replies"], within=60)
                shop.shop.site.behave(lost_replies=0.0)
                await shop.stores(shop.versions(orders), within=60)
                sent = 2 * CHANGED * (1 + REPEATS)
                await eventually(lambda counts=state.counts, sent=sent: counts["webhooks_sent"] == sent, within=60)
        dead = await asyncio.to_thread(cli.run, "dead", "list", "--json")

    assert dead.stdout == ""
