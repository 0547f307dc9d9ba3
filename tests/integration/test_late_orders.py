"""Orders that a shop announces some seconds before its API shows them, with a shop that reads from a replica."""

from pathlib import Path
from typing import Any

from integration.scene import Scene
from multidict import CIMultiDict
from support import eventually
from webhook_requests import NOW, webhook

from ingest.api.webhooks.reception import read_webhook
from ingest.domain.deliveries.announcement import Announcement
from ingest.lab.shops.orders import ShopOrder
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.queue.produce.producer import Producer

SECRET = "a-secret-of-the-webhook"
LAG = 3.0


def upstream_of(shop: SimulatedShop) -> dict[str, Any]:
    """The settings of a worker for the shop, without bulk requests."""
    user, _, password = shop.site.behaviour.token.partition(":")
    return {
        "upstream_url": f"{shop.base_url}/wp-json/wc/v3/orders/{{order_id}}",
        "upstream_auth": "basic",
        "upstream_user": user,
        "upstream_password": password,
        "mapping": "woocommerce",
    }


def announced(shop: SimulatedShop, order: ShopOrder, folder: Path, event: Any = "updated") -> Announcement:
    """The order as the API enqueues it for a signed webhook."""
    sent = shop.kind.webhook(event, order, SECRET.encode())
    assert sent is not None
    received = read_webhook(
        webhook(folder, 'profile = "woocommerce"', SECRET), CIMultiDict(sent.headers), sent.body, NOW
    )
    assert received is not None
    return received.announcements[0]


async def test_an_order_that_its_shop_shows_after_its_webhook_is_stored_without_a_dead_letter(
    scene: Scene, tmp_path: Path
) -> None:
    async with SimulatedShop("woocommerce", orders=5, seed=1) as shop, scene.worker(**upstream_of(shop)) as worker:
        known = shop.kind.order_id(1)
        await scene.enqueue(known)
        await scene.stored_at_least(1)
        shop.site.behave(replica_lag=LAG)
        placed = shop.state.create(quiet=True)

        await Producer(scene.redis, scene.queue).enqueue([announced(shop, placed, tmp_path, "created")])
        await scene.finished()

        assert set(await scene.rows()) == {known, shop.kind.order_id(placed.number)}
        assert await scene.dead() == []
        assert worker.metric("ingest_retries_total", reason="not_found") >= 1


async def test_a_replica_with_an_older_version_than_the_webhook_is_not_the_last_word(
    scene: Scene, tmp_path: Path
) -> None:
    async with SimulatedShop("woocommerce", orders=5, seed=1) as shop, scene.worker(**upstream_of(shop)) as worker:
        order = shop.state.get(1)
        assert order is not None
        shop.site.behave(replica_lag=LAG)
        shop.state.change(order, quiet=True)

        await Producer(scene.redis, scene.queue).enqueue([announced(shop, order, tmp_path)])
        await scene.finished()

        [row] = (await scene.rows()).values()
        assert row["version"] == order.updated_at
        assert worker.metric("ingest_retries_total", reason="outdated") >= 1
        assert worker.metric("ingest_outdated_documents_total") == 0


async def test_the_dead_letter_of_an_order_that_is_stored_later_disappears_and_others_stay(scene: Scene) -> None:
    async with SimulatedShop("woocommerce", orders=5, seed=1) as shop, scene.worker(**upstream_of(shop)):
        known, missing = shop.kind.order_id(1), shop.kind.order_id(99_999)
        await scene.enqueue(known)
        await scene.stored_at_least(1)
        shop.site.behave(replica_lag=LAG)
        placed = shop.state.create(quiet=True)
        late = shop.kind.order_id(placed.number)
        # Entries of a program, which are no evidence.
        await scene.enqueue(late, missing)

        async def are_dead() -> bool:
            return {each["order_id"] for each in await scene.dead()} == {late, missing}

        await eventually(are_dead, within=LAG)
        await scene.enqueue(known)
        shop.site.behave(replica_lag=0)
        await scene.enqueue(late)

        async def is_settled() -> bool:
            return [each["order_id"] for each in await scene.dead()] == [missing]

        await eventually(is_settled, within=60.0)
        assert late in await scene.rows()
