"""One deployment with a source of each known kind, and the simulated shop of each."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

import asyncpg
from shipped import as_admin
from support import eventually

from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.simulated_shop import SimulatedShop

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
        keys: of the source.
        limits: fields of the behaviour of the shop, whose usual limits would take too long.
        sends_webhooks: whether the shop sends webhooks.
        logs_in: whether the source exchanges its credential for a token.
    """

    shape: str
    keys: str
    limits: Mapping[str, object] = field(default_factory=dict)
    sends_webhooks: bool = True
    logs_in: bool = False


KINDS = {
    "shopify": Kind(
        "shopify",
        'client_id = "simulated-client"\nclient_secret = "simulated-secret"',
        {"rate_limit": 2500, "rate_burst": 2500},
        logs_in=True,
    ),
    "shopify-rest": Kind(
        "shopify-rest",
        'shop = "simulated.myshopify.com"\ntoken = "shpat_simulated"\nupstream.rate = 150',
        {"rate_limit": 160, "rate_burst": 40},
    ),
    "woocommerce": Kind(
        "woocommerce", 'consumer_key = "ck_simulated"\nconsumer_secret = "cs_simulated"\nupstream.rate = 50'
    ),
    "amazon": Kind(
        "amazon",
        LOGIN_WITH_AMAZON + "upstream.rate = 150\nlist.rate = 50",
        {"rate_limit": 160, "rate_burst": 40, "list_lag": 0},
        sends_webhooks=False,
        logs_in=True,
    ),
    "bigcommerce": Kind(
        "bigcommerce",
        'store_hash = "simulated"\ntoken = "simulated-token"\nupstream.rate = 300',
        {"rate_limit": 310, "rate_burst": 40},
    ),
    "magento": Kind("magento", 'token = "simulated-token"\nupstream.rate = 50', sends_webhooks=False),
}

KINDS["amazon-v0"] = KINDS["amazon"]


@dataclass
class KindShop:
    """A source, and the shop that it reads.

    Attributes:
        name: of the source.
        kind_name: the name of its kind.
    """

    name: str
    kind_name: str
    kind: Kind
    shop: SimulatedShop
    postgres: asyncpg.Pool

    async def change(self, count: int, *, quiet: bool) -> dict[str, datetime]:
        """Change orders, and return the times of their changes by ID.

        A time without seconds may be a whole minute, and is not compared until it has passed.
        """
        await eventually(lambda: 0 < self.shop.state.clock().second < 59)
        orders = self.shop.state.random_orders(count)
        for order in orders:
            self.shop.state.change(order, quiet=quiet)
        return self.versions(orders)

    def orders(self) -> dict[str, datetime]:
        """The times of the last change of all orders by ID."""
        return self.versions(self.shop.state.listed(None))

    def versions(self, orders: Sequence[ShopOrder]) -> dict[str, datetime]:
        """The times of the last change of these orders by ID."""
        return {self.shop.kind.order_id(order.number): order.updated_at for order in orders}

    async def stored(self) -> dict[str, datetime]:
        """The versions of the stored orders by ID."""
        rows = await self.postgres.fetch("SELECT order_id, version FROM orders WHERE source = $1", self.name)
        return {row["order_id"]: row["version"] for row in rows}

    async def stores(self, wanted: Mapping[str, datetime], within: float) -> None:
        """Wait until these versions of orders are stored."""

        async def lacking() -> dict[str, tuple[datetime | None, datetime]]:
            stored = await self.stored()
            return {key: (stored.get(key), version) for key, version in wanted.items() if stored.get(key) != version}

        async def are_stored() -> bool:
            return not await lacking()

        try:
            await eventually(are_stored, within=within, every=0.1)
        except AssertionError:
            still = await lacking()
            raise AssertionError(f"{self.name}: {len(still)} of {len(wanted)} are not stored: {still}") from None

    async def is_final(self) -> bool:
        """Whether no poll fetches an order again because it may have changed in the second of its version."""
        query = """SELECT max(version) < now() - $2::interval AND bool_and(fetched_at > version + $3::interval)
                   FROM orders WHERE source = $1"""
        return bool(await self.postgres.fetchval(query, self.name, timedelta(seconds=12), timedelta(seconds=5)))

    async def plant_differences(self) -> dict[str, str]:
        """Let 50 orders be missing in the database, and 50 differ from the shop. Return how, by ID."""
        state, order_id = self.shop.state, self.shop.kind.order_id
        # Amazon's pending orders come without a total.
        drawn = sorted(state.random_orders(100), key=lambda order: order.status != "pending")
        missing, outdated, deleted, total = drawn[:50], drawn[50:80], drawn[80:90], drawn[90:]
        by_list, by_lines = total[:3], total[3:]
        for order in outdated:
            state.change(order, quiet=True)
        for order in deleted:
            state.delete(order, quiet=True)
        await self.postgres.execute(
            "DELETE FROM orders WHERE source = $1 AND order_id = ANY ($2::text[])",
            self.name,
            [order_id(order.number) for order in missing],
        )
        await self.postgres.execute(
            """UPDATE orders SET attributes = attributes || '{"total_difference": "1.00"}'
            WHERE source = $1 AND order_id = ANY ($2::text[])""",
            self.name,
            [order_id(order.number) for order in by_lines],
        )
        await self.postgres.execute(
            "UPDATE orders SET total = total + 0.01 WHERE source = $1 AND order_id = ANY ($2::text[])",
            self.name,
            [order_id(order.number) for order in by_list],
        )
        kinds = {"outdated": outdated, "unexpected": deleted, "missing": missing, "total": total}
        return {order_id(order.number): kind for kind, orders in kinds.items() for order in orders}

    def section(self, poll: str) -> str:
        """The section of the source in the sources file."""
        webhook = 'webhook.secret_files = ["webhook-secret"]\n' if self.kind.sends_webhooks else ""
        keys = f'kind = "{self.kind_name}"\nbase_url = "{self.shop.base_url}"\n{self.kind.keys}\n'
        return f'[sources.{self.name}]\n{keys}{webhook}poll = "{poll}"\n'


@asynccontextmanager
async def running_shops(
    dsn: str, names: Sequence[str], orders: int, currencies: Sequence[str] = ("EUR",)
) -> AsyncIterator[list[KindShop]]:
    """Start a shop of each kind for each currency. Shops of one kind have the same IDs."""
    async with AsyncExitStack() as stack:
        postgres = await stack.enter_async_context(asyncpg.create_pool(as_admin(dsn), min_size=1, max_size=4))
        shops = []
        for number, currency in enumerate(currencies):
            for kind_name in names:
                kind, name = KINDS[kind_name], kind_name + (f"-{currency.lower()}" if len(currencies) > 1 else "")
                changes = {"webhook_secret": SECRET, **kind.limits}
                shop = SimulatedShop(kind.shape, orders=orders, changes=changes, currency=currency, seed=1 + number)
                shops.append(KindShop(name, kind_name, kind, await stack.enter_async_context(shop), postgres))
        yield shops


def write_sources(file: Path, shops: Sequence[KindShop], poll: str) -> None:
    """Write the sources file, with this interval of polls."""
    (file.parent / "webhook-secret").write_text(SECRET)
    written = file.with_suffix(".new")
    written.write_text("\n".join(shop.section(poll) for shop in shops))
    written.replace(file)
