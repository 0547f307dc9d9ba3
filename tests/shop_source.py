"""A simulated WooCommerce shop as a separate source, with the list of its orders."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from integration.scene import Scene

from ingest.domain.source_name import queue_of
from ingest.lab.shops.simulated_shop import SimulatedShop

SOURCE = "outdoor"
# Without the kind, which polls as well.
_SECTION = """
[sources.{name}]
mapping = "woocommerce"

[sources.{name}.upstream]
url = "{base_url}/wp-json/wc/v3/orders/{{order_id}}"
auth = "basic"
user = "{user}"
password = "{password}"
tries = 1

[sources.{name}.list]
url = "{list_url}/wp-json/wc/v3/orders?modified_after={{since}}&modified_before={{until}}&dates_are_gmt=true&orderby=modified&order=asc&per_page={size}&page={{cursor}}"
updated_at = "date_modified_gmt"
amount = "total"
time = "iso_without_zone"
next = "page"
size = {size}
ascending = true
"""


@dataclass(frozen=True, slots=True)
class ShopSource:
    """A shop with the scene of its queue and its orders.

    Attributes:
        env: the variables of the commands that use it.
        scene: on the queue of the source. Its simulated API is not used.
    """

    shop: SimulatedShop
    env: Mapping[str, str]
    scene: Scene
    file: Path

    def order_ids(self) -> list[str]:
        """The IDs of all orders of the shop."""
        return [self.shop.kind.order_id(order.number) for order in self.shop.state.listed(None)]

    async def stored(self) -> set[str]:
        """The IDs of all stored orders of the source."""
        return {row[0] for row in await self.scene.sql("SELECT order_id FROM orders WHERE source = $1", SOURCE)}


@asynccontextmanager
async def shop_source(
    scene: Scene, folder: Path, *, orders: int, size: int = 50, list_url: str = ""
) -> AsyncIterator[ShopSource]:
    """Open a shop whose orders changed within the last month, on the servers of a scene.

    Args:
        scene: of the test.
        folder: for the sources file.
        orders: of the shop.
        size: of a page of its list.
        list_url: where the list is read, if not from the shop itself.
    """
    stream = scene.queue
    async with (
        SimulatedShop("woocommerce", orders=orders, seed=1) as shop,
        Scene.open(scene.redis_url, scene.dsn, queue_of(stream, SOURCE)) as own,
    ):
        user, _, password = shop.site.behaviour.token.partition(":")
        file = folder / "sources.toml"
        file.write_text(
            _SECTION.format(
                name=SOURCE,
                base_url=shop.base_url,
                list_url=list_url or shop.base_url,
                user=user,
                password=password,
                size=size,
            )
        )
        env = {"INGEST_SOURCES": str(file), "INGEST_STREAM": stream, "INGEST_LOG_FORMAT": "json"}
        yield ShopSource(shop, env, own, file)
