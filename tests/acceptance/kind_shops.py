"""One deployment with a source of each known kind, and the simulated shop of each as a process."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import aiohttp
import asyncpg
from support import Cli, eventually

SECRET = "a-secret-of-webhooks"
LOGIN_WITH_AMAZON = """
region = "eu"
marketplaces = "A1PA6795UKMFR9"
client_id = "simulated-client"
client_secret = "simulated-secret"
refresh_token = "Atzr|simulated"
"""


@dataclass(frozen=True)
class Kind:
    """A kind of source.

    Attributes:
        shape: the simulated shop.
        limits: options of the shop, whose limits would make the test slow.
        keys: of the source.
        sends_webhooks: whether the shop sends webhooks.
        logs_in: whether the source exchanges its credential for a token.
    """

    shape: str
    limits: Sequence[str]
    keys: str
    sends_webhooks: bool = True
    logs_in: bool = False


KINDS = {
    "shopify-rest": Kind(
        "shopify-rest",
        ("--rate-limit", "60", "--rate-burst", "100"),
        'shop = "simulated.myshopify.com"\ntoken = "shpat_simulated"\nupstream.rate = 50',
    ),
    "woocommerce": Kind(
        "woocommerce",
        (),
        'consumer_key = "ck_simulated"\nconsumer_secret = "cs_simulated"\nupstream.rate = 50',
    ),
    "amazon": Kind(
        "amazon",
        ("--rate-limit", "60", "--rate-burst", "100"),
        LOGIN_WITH_AMAZON + "upstream.rate = 50\nlist.rate = 50",
        sends_webhooks=False,
        logs_in=True,
    ),
    "amazon-v0": Kind(
        "amazon",
        ("--rate-limit", "60", "--rate-burst", "100"),
        LOGIN_WITH_AMAZON + "upstream.rate = 50\nlist.rate = 50",
        sends_webhooks=False,
        logs_in=True,
    ),
    "bigcommerce": Kind(
        "bigcommerce",
        ("--rate-limit", "150", "--rate-burst", "150"),
        'store_hash = "simulated"\ntoken = "simulated-token"\nupstream.rate = 140',
    ),
    "magento": Kind("magento", (), 'token = "simulated-token"\nupstream.rate = 50', sends_webhooks=False),
}


@dataclass
class KindShop:
    """A source, and the shop that it reads.

    Attributes:
        name: of the source, which is that of its kind.
        url: base URL of the shop.
    """

    name: str
    url: str
    kind: Kind
    http: aiohttp.ClientSession
    postgres: asyncpg.Pool

    async def call(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to a control route of the shop."""
        async with self.http.request(method, self.url + path, json=body) as response:
            assert response.ok, await response.text()
            return await response.json() if response.status != 204 else None

    async def change(self, count: int, *, quiet: bool) -> dict[str, datetime]:
        """Change orders, and return the times of their changes by ID."""
        return _versions(await self.call("POST", "/shop/changes", {"count": count, "quiet": quiet}))

    async def orders(self) -> dict[str, datetime]:
        """The times of the last change of all orders by ID."""
        return _versions(await self.call("GET", "/shop/orders"))

    async def stored(self) -> dict[str, datetime]:
        """The versions of the stored orders by ID."""
        rows = await self.postgres.fetch("SELECT order_id, version FROM orders WHERE source = $1", self.name)
        return {row["order_id"]: row["version"] for row in rows}

    async def stores(self, wanted: Mapping[str, datetime], within: float) -> None:
        """Wait until these versions of orders are stored."""

        async def are_stored() -> bool:
            stored = await self.stored()
            return all(stored.get(order_id) == version for order_id, version in wanted.items())

        try:
            await eventually(are_stored, within=within, every=0.1)
        except AssertionError:
            stored = await self.stored()
            lacking = {key: (stored.get(key), version) for key, version in wanted.items() if stored.get(key) != version}
            raise AssertionError(f"{self.name}: {len(lacking)} of {len(wanted)} are not stored: {lacking}") from None

    def section(self, more: str) -> str:
        """The section of the source in the sources file."""
        webhook = 'webhook.secret_files = ["webhook-secret"]' if self.kind.sends_webhooks else ""
        return f'[sources.{self.name}]\nkind = "{self.name}"\nbase_url = "{self.url}"\n{self.kind.keys}\n{webhook}\n{more}\n'


@asynccontextmanager
async def running_shops(
    cli: Cli, folder: Path, dsn: str, names: Sequence[str], orders: int
) -> AsyncIterator[list[KindShop]]:
    """Start the shop of each kind."""
    (folder / "webhook-secret").write_text(SECRET)
    processes = {
        name: cli.start(
            *("upstream", "--port", "0", "--shape", KINDS[name].shape, "--orders", str(orders), "--seed", "1"),
            *("--webhook-secret-file", str(folder / "webhook-secret"), *KINDS[name].limits),
        )
        for name in names
    }
    async with aiohttp.ClientSession() as http, asyncpg.create_pool(dsn, min_size=1, max_size=4) as postgres:
        shops = []
        for name, process in processes.items():
            assert process.stdout is not None
            url = (await asyncio.to_thread(process.stdout.readline)).strip()
            shops.append(KindShop(name, url, KINDS[name], http, postgres))
            if KINDS[name].shape == "amazon":
                await shops[-1].call("PATCH", "/behaviour", {"list_lag": 0})
        yield shops


def write_sources(file: Path, shops: Sequence[KindShop], more: str) -> None:
    """Write the sources file, with these further lines for each source."""
    written = file.with_suffix(".new")
    written.write_text("\n".join(shop.section(more) for shop in shops))
    written.replace(file)


def _versions(rows: Sequence[Mapping[str, str]]) -> dict[str, datetime]:
    return {row["id"]: datetime.fromisoformat(row["updated_at"]) for row in rows}
