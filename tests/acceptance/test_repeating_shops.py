"""Two shops of every kind that share their order IDs, repeat webhooks, lose responses, and take their time.

The modes follow public sources, which `ingest.lab.shops.shop_modes` names.
"""

import asyncio
import signal
from pathlib import Path

import pytest
from acceptance.commands import closing_workers, running_api
from acceptance.kind_shops import KINDS, running_shops, write_sources
from support import Cli, eventually

CHANGED = 10
HOUR = 0.1
FAULTS = {
    "unheard": 0.5,
    "lost_replies": 0.3,
    "latency": "lognormal:0.05,0.8",
    "index_lag": 1.0,
    "replica_lag": 1.0,
    "replica_share": 0.3,
}
AFTERWARDS = {**dict.fromkeys(FAULTS, 0.0), "latency": "0"}


@pytest.mark.timeout(300)
async def test_orders_with_shared_ids_are_stored_once_in_their_last_version_below_their_own_source(
    cli: Cli, tmp_path: Path, dsn: str
) -> None:
    cli.forget_api()
    assert cli.run("migrate").returncode == 0
    file = tmp_path / "sources.toml"
    cli.env["INGEST_SOURCES"] = str(file)
    async with running_shops(dsn, list(KINDS), 50, currencies=("EUR", "GBP")) as shops:
        write_sources(file, shops, "2s")
        with running_api(cli) as api, closing_workers(cli, cli.env) as workers:
            worker = workers.start("--processes", "1")
            receiver = (await api.says("listening"))["url"]
            for shop in shops:
                url = f"{receiver}/v1/webhooks/{shop.name}" if shop.kind.sends_webhooks else None
                shop.shop.site.behave(webhooks=url, second_topic=True, webhook_hour=HOUR, **FAULTS)
                state = shop.shop.state
                orders = [*state.random_orders(CHANGED), *(state.create() for _ in range(CHANGED))]
                for order in [*orders, *orders]:
                    state.change(order)
            for shop in shops:
                await eventually(lambda counts=shop.shop.state.counts: counts["lost_replies"], within=60)
            worker.ask_group(signal.SIGKILL)
            workers.start("--processes", "1")
            for shop in shops:
                shop.shop.site.behave(**AFTERWARDS)
            for shop in shops:
                changed = [order for order in shop.shop.state.all_orders() if order.revision > 1]
                assert len(changed) == 2 * CHANGED
                await shop.stores(shop.versions(changed), within=90)
        dead = await asyncio.to_thread(cli.run, "dead", "list", "--json")

        assert dead.stdout == ""
        for shop in shops:
            # Amazon's pending orders come without a currency.
            query = "SELECT DISTINCT currency FROM orders WHERE source = $1 AND lower(status) <> 'pending'"
            rows = await shop.postgres.fetch(query, shop.name)
            assert [row["currency"] for row in rows] == [shop.name[-3:].upper()], shop.name
            counts = shop.shop.state.counts
            assert bool(counts["webhooks_repeated"]) == bool(shop.shop.kind.retries), (shop.name, counts)
