"""Every known kind converges with its shop through kills, outages, throttling, expired tokens and lost webhooks.

`INGEST_TEST_SECONDS` sets for how long the shops change and are disturbed.
"""

import asyncio
import os
import signal
import time
from datetime import datetime
from pathlib import Path
from random import Random

import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers, running_api
from acceptance.kind_shops import KINDS, KindShop, running_shops, write_sources
from support import Cli

WITH_DOCUMENTS = {"amazon", "magento", "shopify-rest", "woocommerce"}
SECONDS = int(os.environ.get("INGEST_TEST_SECONDS", "6"))


@pytest.mark.timeout(SECONDS + 300)
async def test_disturbed_shops_of_every_kind_are_stored_completely(cli: Cli, tmp_path: Path, dsn: str) -> None:
    cli.forget_api()
    assert cli.run("migrate").returncode == 0
    file = tmp_path / "sources.toml"
    cli.env["INGEST_SOURCES"] = str(file)
    async with running_shops(dsn, list(KINDS), 200) as shops:
        write_sources(file, shops, "2s")
        with running_api(cli) as api, closing_workers(cli, cli.env) as workers:
            fleet = [workers.start("--processes", "1") for _ in range(2)]
            receiver = (await api.says("listening"))["url"]
            for shop in shops:
                begin_changes(shop, receiver)
            await disturb(shops, workers, fleet, Random(5))
            for shop in shops:
                shop.shop.site.behave(changes_per_second=0.0, shifts=0)
            for shop in shops:
                await shop.stores(changed_orders(shop), within=60)
        dead = await asyncio.to_thread(cli.run, "dead", "list", "--json")

    assert dead.stdout == ""
    for shop in shops:
        state = shop.shop.state
        # An order in flight is fetched again after a kill, and a change once more after its second. Lists with whole documents cost none.
        most = 1.2 if shop.name in WITH_DOCUMENTS else 2
        assert state.fetches.total() <= most * (state.counts["updated"] + state.counts["created"]) + 20, shop.name


def begin_changes(shop: KindShop, receiver: str) -> None:
    shop.shop.site.behave(
        webhooks=f"{receiver}/v1/webhooks/{shop.name}" if shop.kind.sends_webhooks else None,
        webhook_share=0.3,
        changes_per_second=3.0,
        late_share=0.2,
        late=4.0,
        token_lifetime=20.0,
        shifts=50,
    )


async def disturb(shops: list[KindShop], workers: Workers, fleet: list[WorkerCommand], random: Random) -> None:
    until = time.monotonic() + SECONDS
    while time.monotonic() < until:
        await asyncio.sleep(3)
        site = random.choice(shops).shop.site
        match random.choice(["throttled", "down", "expired", "killed"]):
            case "expired":
                site.revoke_tokens()
            case "killed":
                index = random.randrange(len(fleet))
                fleet[index].ask_group(signal.SIGKILL)
                fleet[index] = workers.start("--processes", "1")
            case fault:
                site.behave(**{fault: True})
                await asyncio.sleep(1.5)
                site.behave(**{fault: False})


def changed_orders(shop: KindShop) -> dict[str, datetime]:
    """The orders that changed since the start. The others were never announced."""
    orders = [order for order in shop.shop.state.all_orders() if order.revision > 1 or order.number > 200]
    return shop.versions(orders)
