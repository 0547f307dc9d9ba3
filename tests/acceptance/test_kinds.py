"""Every known kind end to end against its simulated shop: login, webhook to row, backfill, poll, reconcile, and quota.

All sources belong to one deployment. `INGEST_TEST_ORDERS` sets the orders of each shop, and `INGEST_TEST_KINDS` the
kinds, separated by commas.
"""

import asyncio
import json
import os
from pathlib import Path

import pytest
from acceptance.commands import closing_workers, running_api
from acceptance.kind_shops import KINDS, KindShop, running_shops, write_sources
from support import Cli, eventually

ORDERS = int(os.environ.get("INGEST_TEST_ORDERS", "120"))
NAMES = os.environ.get("INGEST_TEST_KINDS", ",".join(KINDS)).split(",")
CHANGES = max(5, ORDERS // 20)
WITHIN = 30 + ORDERS / 5


@pytest.mark.timeout(4 * WITHIN)
async def test_orders_of_every_kind_arrive(cli: Cli, tmp_path: Path, dsn: str) -> None:
    cli.forget_api()
    assert cli.run("migrate").returncode == 0
    file = tmp_path / "sources.toml"
    cli.env["INGEST_SOURCES"] = str(file)
    async with running_shops(dsn, NAMES, ORDERS) as shops:
        write_sources(file, shops, "1h")
        with running_api(cli) as api, closing_workers(cli, cli.env) as workers:
            worker = workers.start("--processes", "1")
            receiver = (await api.says("listening"))["url"]
            await asyncio.gather(*[webhook_to_row(shop, receiver) for shop in shops if shop.kind.sends_webhooks])
            await asyncio.gather(*[backfill(cli, shop) for shop in shops])
            write_sources(file, shops, "1s")
            await asyncio.gather(*[poll(shop) for shop in shops])
            await eventually(lambda: is_empty(cli), within=WITHIN, every=0.5)
            assert await worker.stop() == 0
        await asyncio.gather(*[reconcile(cli, shop, tmp_path) for shop in shops])
        for shop in shops:
            quota_is_kept(shop)


async def webhook_to_row(shop: KindShop, receiver: str) -> None:
    shop.shop.site.behave(webhooks=f"{receiver}/v1/webhooks/{shop.name}")
    await shop.stores(await shop.change(3, quiet=False), within=WITHIN)

    counts = shop.shop.state.counts
    assert (counts["webhooks_sent"], counts["webhooks_failed"]) == (3, 0), shop.name


async def backfill(cli: Cli, shop: KindShop) -> None:
    code, _, error = await finished(cli, "backfill", "--source", shop.name, "--since", "60d", "--json")
    assert code == 0, (shop.name, error)
    await shop.stores(shop.orders(), within=WITHIN)


async def poll(shop: KindShop) -> None:
    """A reconciliation does not trust what was fetched within a second in which the order may have changed again."""
    await shop.stores(await shop.change(CHANGES, quiet=True), within=WITHIN)
    await eventually(shop.is_final, within=WITHIN, every=0.1)


async def is_empty(cli: Cli) -> bool:
    """Whether no order waits, or is being fetched, in any queue."""
    _, status, _ = await finished(cli, "status", "--json")
    totals = json.loads(status)["totals"]
    return totals["depth"] == totals["pending"] == totals["retries"] == 0


async def reconcile(cli: Cli, shop: KindShop, folder: Path) -> None:
    """The list of each shop comes in smaller pages than requested."""
    planted = await shop.plant_differences()
    shop.shop.site.behave(page_cap=40)
    report = folder / f"{shop.name}.jsonl"
    options = ("--source", shop.name, "--since", "60d", "--report", str(report))

    code, _, error = await finished(cli, "reconcile", *options)

    assert code == 1, (shop.name, error)
    found = [json.loads(line) for line in report.read_text().splitlines()]
    assert {difference["order_id"]: difference["difference"] for difference in found} == planted, shop.name
    assert len(found) == len(planted) == 100
    assert [*planted.values()].count("missing") == 50


async def finished(cli: Cli, *arguments: str) -> tuple[int | None, str, str]:
    """Run a command concurrently with others, and return its exit code and output."""
    process = cli.start(*arguments)
    out, error = await asyncio.to_thread(process.communicate)
    return process.returncode, out, error


def quota_is_kept(shop: KindShop) -> None:
    counts = shop.shop.state.counts
    assert counts["throttled"] <= counts["requests"] / 50, (shop.name, counts)
    assert counts["unauthorized"] == 0, (shop.name, counts)
    if shop.kind.logs_in:
        assert counts["tokens"] <= 6, (shop.name, counts)
