"""Every known kind end to end against its simulated shop: login, webhook to row, fetches of all orders, and quota.

All sources belong to one deployment. `INGEST_TEST_ORDERS` sets the orders of each shop, and `INGEST_TEST_KINDS` the
kinds, separated by commas.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from acceptance.commands import WorkerCommand, closing_workers
from acceptance.kind_shops import KINDS, KindShop, running_shops, write_sources
from support import Cli

ORDERS = int(os.environ.get("INGEST_TEST_ORDERS", "60"))
NAMES = os.environ.get("INGEST_TEST_KINDS", ",".join(KINDS)).split(",")
WITHIN = 30 + ORDERS / 2


@contextmanager
def running_api(cli: Cli) -> Iterator[WorkerCommand]:
    api = WorkerCommand(cli.start("api", env={"INGEST_API_PORT": "0", "INGEST_API_METRICS_PORT": "0"}))
    try:
        yield api
    finally:
        api.close()


@pytest.mark.timeout(4 * WITHIN)
async def test_orders_of_every_kind_arrive(cli: Cli, tmp_path: Path, dsn: str) -> None:
    for name in [name for name in cli.env if name.startswith("INGEST_UPSTREAM_")]:
        del cli.env[name]
    assert cli.run("migrate").returncode == 0
    file = tmp_path / "sources.toml"
    cli.env["INGEST_SOURCES"] = str(file)
    async with running_shops(cli, tmp_path, dsn, NAMES, ORDERS) as shops:
        write_sources(file, shops, "")
        with running_api(cli) as api, closing_workers(cli, cli.env) as workers:
            worker = workers.start("--processes", "1")
            receiver = (await api.says("listening"))["url"]
            await asyncio.gather(*[webhook_to_row(shop, receiver) for shop in shops if shop.kind.sends_webhooks])
            await asyncio.gather(*[backfill(cli, shop) for shop in shops if "shopify" not in shop.name])
            assert await worker.stop() == 0
        for shop in shops:
            await quota_is_kept(shop)


async def webhook_to_row(shop: KindShop, receiver: str) -> None:
    await shop.call("PATCH", "/behaviour", {"webhooks": f"{receiver}/v1/webhooks/{shop.name}"})
    changed = await shop.change(3, quiet=False)
    await shop.stores(changed, within=WITHIN)
    counts = (await shop.call("GET", "/stats?ids=0"))["counts"]
    assert (counts["webhooks_sent"], counts.get("webhooks_failed", 0)) == (3, 0), shop.name


async def backfill(cli: Cli, shop: KindShop) -> None:
    done = await asyncio.to_thread(
        cli.run, "backfill", "--source", shop.name, "--since", "60d", "--json", timeout=WITHIN
    )
    assert done.returncode == 0, (shop.name, done.stderr)
    await shop.stores(await shop.orders(), within=WITHIN)


async def quota_is_kept(shop: KindShop) -> None:
    stats = await shop.call("GET", "/stats?ids=0")
    throttled = stats["counts"].get("throttled", 0)
    assert throttled <= stats["counts"]["requests"] / 50, (shop.name, stats)
    assert stats["counts"].get("unauthorized", 0) == 0, (shop.name, stats)
    if shop.kind.logs_in:
        assert stats["counts"]["tokens"] <= 4, (shop.name, stats)
