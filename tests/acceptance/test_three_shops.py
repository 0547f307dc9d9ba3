"""Three shops in one deployment. The real commands store the orders of each, announced by webhooks and by IDs.

The orders of the shops share their IDs and differ in their currency. `INGEST_TEST_ORDERS` sets their number.
"""

import asyncio
import base64
import hashlib
import hmac
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from acceptance.commands import closing_workers, running_api
from support import Cli, connected, eventually

from ingest.lab.upstream.samples import sample_orders

COUNT = int(os.environ.get("INGEST_TEST_ORDERS", "150"))
SECRET = "a-secret-of-webhooks"


@dataclass(frozen=True)
class Kind:
    """The credential and the webhooks of a kind of shop."""

    settings: str
    options: tuple[str, str]
    signature: str
    headers: Mapping[str, str]


KINDS = {
    "shopify": Kind(
        'auth = "header"\nauth_header = "X-Shopify-Access-Token"\ntoken = "shpat_1"\n',
        ("--key", "X-Shopify-Access-Token: shpat_1"),
        "X-Shopify-Hmac-SHA256",
        {"X-Shopify-Topic": "orders/updated"},
    ),
    "woocommerce": Kind(
        'auth = "basic"\nuser = "ck_1"\npassword = "cs_1"\n',
        ("--basic", "ck_1:cs_1"),
        "X-WC-Webhook-Signature",
        {"X-WC-Webhook-Topic": "order.updated"},
    ),
}


@dataclass(frozen=True)
class Shop:
    name: str
    kind: str
    currency: str


SHOPS = [Shop("shop-de", "shopify", "EUR"), Shop("shop-uk", "shopify", "GBP"), Shop("shop-no", "woocommerce", "NOK")]
# In webhooks of these shops, IDs are numbers.
SAMPLES = [json.loads(document) for name, document in sample_orders().items() if name.isdecimal()][:COUNT]
IDS = [str(sample["id"]) for sample in SAMPLES]


@pytest.fixture
def sources(cli: Cli, tmp_path: Path) -> Path:
    """The sources file of three running shops, whose path the commands get."""
    (tmp_path / "webhook-secret").write_text(SECRET)
    file = tmp_path / "sources.toml"
    with file.open("w") as lines:
        for shop in SHOPS:
            kind = KINDS[shop.kind]
            options = ("--port", "0", *kind.options, "--currency", shop.currency)
            upstream = cli.start("upstream", *options, "--latency", "0.01-0.03")
            assert upstream.stdout is not None
            lines.write(f'[sources.{shop.name}.webhook]\nprofile = "{shop.kind}"\nsecret_files = ["webhook-secret"]\n')
            lines.write(f'[sources.{shop.name}.upstream]\nurl = "{upstream.stdout.readline().strip()}"\n')
            lines.write(kind.settings)
    cli.forget_api()
    cli.env["INGEST_SOURCES"] = str(file)
    return file


async def announce(http: aiohttp.ClientSession, shop: Shop, order_id: str) -> int:
    """Send a webhook of the shop, signed in the manner of its kind."""
    kind, body = KINDS[shop.kind], json.dumps({"id": int(order_id)}).encode()
    signature = base64.b64encode(hmac.digest(SECRET.encode(), body, hashlib.sha256)).decode()
    headers = {kind.signature: signature, "Content-Type": "application/json", **kind.headers}
    async with http.post(f"/v1/webhooks/{shop.name}", data=body, headers=headers) as response:
        return response.status


@pytest.mark.timeout(600)
async def test_orders_of_three_shops_are_stored_with_the_contents_of_their_own_shop(
    cli: Cli, sources: Path, dsn: str
) -> None:
    del sources
    assert cli.run("migrate").returncode == 0
    with running_api(cli) as api, closing_workers(cli, cli.env) as workers:
        worker = workers.start("--processes", "2")
        async with aiohttp.ClientSession(str((await api.says("listening"))["url"])) as http:
            for shop in SHOPS:
                enqueued = cli.run("enqueue", "--source", shop.name, "-", stdin="\n".join(IDS[::2]))
                assert enqueued.returncode == 0, enqueued.stderr
                statuses = await asyncio.gather(*[announce(http, shop, order_id) for order_id in IDS[1::2]])
                assert {*statuses} <= {200, 202, 204}
        async with connected(dsn) as connection:
            wanted = len(SHOPS) * len(IDS)

            async def stored() -> bool:
                return bool(await connection.fetchval("SELECT count(*) FROM orders") == wanted)

            await eventually(stored, within=300)
            rows = await connection.fetch("SELECT *, lines::text AS lines FROM orders")
        assert await worker.stop() == 0

    by_key = {(row["source"], row["order_id"]): row for row in rows}
    assert len(by_key) == wanted
    for shop in SHOPS:
        for sample in SAMPLES:
            assert_stored(by_key[shop.name, sample["id"]], shop, sample)


def assert_stored(row: Any, shop: Shop, sample: Mapping[str, Any]) -> None:
    """Compare a row with the order of its shop, field by field."""
    lines = [(line["sku"], Decimal(str(line["unit_price"]))) for line in sample["lines"]]
    stored = [(line["sku"], Decimal(str(line["unit_price"]))) for line in json.loads(row["lines"], parse_float=Decimal)]
    total = sum((line["quantity"] * Decimal(str(line["unit_price"])) for line in sample["lines"]), Decimal(0))

    assert row["currency"] == shop.currency
    assert row["placed_at"] == datetime.fromisoformat(sample["placed_at"])
    assert row["line_count"] == len(sample["lines"])
    assert (row["total"], stored) == (total, lines), sample["id"]
    assert row["customer_id"] == sample["customer_id"]
