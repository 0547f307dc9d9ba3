"""Lists that contain documents that are no orders by the mapping, such as abandoned checkouts. None of them is called missing."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from acceptance.kind_shops import KINDS
from integration.scene import PLAIN_MAPPING
from support import Cli

from ingest.lab.shops.simulated_shop import SimulatedShop

ORDERS = 30
PERIOD = ("--since", "60d")
# By a field that a list of IDs does not show.
MAPPING = 'skip = [{ path = "status", equals = "pending" }]' + PLAIN_MAPPING


@asynccontextmanager
async def source(cli: Cli, folder: Path, kind: str, keys: str, **modes: object) -> AsyncIterator[SimulatedShop]:
    cli.forget_api()
    (folder / "own.toml").write_text(MAPPING)
    async with SimulatedShop(kind, orders=ORDERS, seed=1, changes=modes) as shop:
        file = folder / "sources.toml"
        file.write_text("[sources.shop]\n" + keys.replace("{base_url}", shop.base_url))
        cli.env["INGEST_SOURCES"] = str(file)
        yield shop


def bigcommerce() -> str:
    return f'kind = "bigcommerce"\nbase_url = "{{base_url}}"\n{KINDS["bigcommerce"].keys}\n'


def own() -> str:
    """An API whose list consists of IDs, times and totals."""
    return (
        'mapping = "own.toml"\nupstream.url = "{base_url}/orders/{order_id}"\nupstream.token = "simulated-token"\n'
        'list.url = "{base_url}/orders?since={since}&page={cursor}"\nlist.items = "orders"\nlist.next = "page"\n'
    )


async def run(cli: Cli, *arguments: str) -> tuple[int, str, str]:
    ended = await asyncio.to_thread(cli.run, *arguments, timeout=60)
    return ended.returncode, ended.stdout, ended.stderr


async def reconciled(cli: Cli) -> tuple[int, Any]:
    code, out, error = await run(cli, "reconcile", *PERIOD, "--json")
    assert out, error
    return code, json.loads(out)


async def test_an_abandoned_checkout_in_a_list_is_neither_missing_nor_enqueued(cli: Cli, tmp_path: Path) -> None:
    async with source(cli, tmp_path, "bigcommerce", bigcommerce(), drafts=3, page_cap=7) as shop:
        code, report = await reconciled(cli)
        _, counted, _ = await run(cli, "backfill", *PERIOD, "--dry-run", "--json")
        await run(cli, "poll")
        for number in (3, 4):
            order = shop.state.get(number)
            assert order is not None
            shop.state.change(order, quiet=True)
        _, polled, error = await run(cli, "poll", "--json")

    assert (code, report["missing"]["count"], report["listed"], report.get("skipped_documents")) == (1, 20, 20, 10)
    assert report["not_proven"] == []
    assert (json.loads(counted)["listed"], json.loads(counted)["missing"]) == (20, 20)
    assert json.loads(polled)["enqueued"] == 1, error
    assert json.loads(polled)["skipped"] >= 1


async def test_pages_full_of_abandoned_checkouts_are_progress_and_a_clean_list(cli: Cli, tmp_path: Path) -> None:
    async with source(cli, tmp_path, "bigcommerce", bigcommerce(), drafts=1, page_cap=5) as shop:
        code, report = await reconciled(cli)
        _, counted, _ = await run(cli, "backfill", *PERIOD, "--dry-run", "--json")

    assert (code, report["missing"]["count"], report["listed"], report.get("skipped_documents")) == (0, 0, 0, ORDERS)
    assert (json.loads(counted)["state"], json.loads(counted)["missing"]) == ("done", 0)
    assert shop.state.counts["requests"] >= 2 * ORDERS / 5


async def test_a_list_of_ids_reports_that_missing_orders_may_be_none(cli: Cli, tmp_path: Path) -> None:
    async with source(cli, tmp_path, "plain", own()):
        code, report = await reconciled(cli)
        _, _, text = await run(cli, "reconcile", *PERIOD)
        _, _, backfilled = await run(cli, "backfill", *PERIOD, "--dry-run")

    assert (code, report["missing"]["count"], report.get("skipped_documents")) == (1, ORDERS, 0)
    [sentence] = report["not_proven"]
    assert sentence.startswith(f"{ORDERS} of the missing orders may be no orders")
    assert f"NOT PROVEN {sentence}" in " ".join(text.split())
    assert sentence in " ".join(backfilled.split())


async def test_a_list_of_whole_documents_shows_that_some_are_no_orders(cli: Cli, tmp_path: Path) -> None:
    keys = f'kind = "magento"\nbase_url = "{{base_url}}"\n{KINDS["magento"].keys}\nmapping = "own.toml"\n'
    async with source(cli, tmp_path, "magento", keys) as shop:
        (tmp_path / "own.toml").write_text(MAPPING.replace('id = "id"', 'id = "entity_id"'))
        drafts = sum(order.status == "pending" for order in shop.state.listed(None))
        code, report = await reconciled(cli)
        _, counted, _ = await run(cli, "backfill", *PERIOD, "--dry-run", "--json")

    assert drafts
    wanted = ORDERS - drafts
    assert (code, report["missing"]["count"], report["skipped_documents"]) == (1, wanted, drafts)
    assert report["not_proven"] == []
    assert json.loads(counted)["missing"] == wanted
