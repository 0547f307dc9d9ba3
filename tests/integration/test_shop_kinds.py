"""Sources of known kinds with a few keys, each against a simulated shop: login, orders, lists, webhooks and limits."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from fakes.workers import metrics
from multidict import CIMultiDict
from support import eventually

from ingest.api.webhooks.reception import read_webhook
from ingest.api.webhooks.source_webhook import webhook_of
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, PermanentFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.listed import ListedOrder
from ingest.domain.fetch.reading import Reading
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order import Order
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.operations.list_pages import pages_of
from ingest.settings import Settings, load_settings
from ingest.settings.source_file import source_settings
from ingest.sources.from_settings import source_of
from ingest.sources.opening import fetching_by
from ingest.sources.source import Source
from ingest.upstream.client import UpstreamClient
from ingest.upstream.lists.order_list import HttpOrderList

LONG_AGO = datetime(2020, 1, 1, tzinfo=UTC)
SECRET = "a-secret-of-the-webhook"
LOGIN_WITH_AMAZON = """
region = 'eu'
marketplaces = 'A1PA6795UKMFR9'
client_id = 'simulated-client'
client_secret = 'simulated-secret'
refresh_token = 'Atzr|simulated'
"""
# The shop that each kind is tried with, and the keys of the kind.
KEYS: dict[str, tuple[str, str]] = {
    "shopify": ("shopify", "client_id = 'simulated-client'\nclient_secret = 'simulated-secret'"),
    "shopify-rest": ("shopify-rest", "token = 'shpat_simulated'"),
    "woocommerce": ("woocommerce", "consumer_key = 'ck_simulated'\nconsumer_secret = 'cs_simulated'"),
    "amazon": ("amazon", LOGIN_WITH_AMAZON),
    "amazon-v0": ("amazon", LOGIN_WITH_AMAZON),
    "bigcommerce": ("bigcommerce", "store_hash = 'simulated'\ntoken = 'simulated-token'"),
    "magento": ("magento", "token = 'simulated-token'"),
}
with_each_kind = pytest.mark.parametrize("kind", KEYS)


def settings_of(kind: str, shop: SimulatedShop, more: str = "") -> Settings:
    """The settings of a source of a kind, from a sources file in the current folder."""
    text = f"[sources.shop]\nkind = '{kind}'\nbase_url = '{shop.base_url}'\n{KEYS[kind][1]}\n{more}"
    Path("sources.toml").write_text(text)
    [settings] = source_settings(load_settings(sources="sources.toml")).values()
    return settings


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "secret").write_text(SECRET)


@asynccontextmanager
async def shop_and_source(kind: str, orders: int = 30) -> AsyncIterator[tuple[SimulatedShop, Source]]:
    async with SimulatedShop(KEYS[kind][0], orders=orders, seed=3) as shop:
        yield shop, source_of(settings_of(kind, shop), {})


async def fetched(source: Source, order_id: str) -> Fetched | Failed:
    async with (
        UpstreamClient.open(source.endpoint, source.limits, metrics().upstream_request) as client,
        fetching_by(client, source) as fetching,
    ):
        return await fetching.upstream.fetch(FetchRequest(order_id))


def mapped(source: Source, body: bytes, order_id: str) -> Order:
    assert source.mapping is not None
    return source.mapping.decode(body, order_id)


async def listed(source: Source, since: datetime = LONG_AGO) -> list[ListedOrder]:
    assert source.order_list is not None
    async with HttpOrderList.open(source.order_list, metrics().upstream_request) as orders:
        reading = Reading(orders.shape, since, None)
        pages = pages_of(orders, reading, pause_after=lambda _fault, _failures: None)
        return [order async for page, _ in pages for order in page.orders]


@with_each_kind
async def test_an_order_is_fetched_with_the_credential_and_its_lines_add_up_to_its_total(kind: str) -> None:
    async with shop_and_source(kind) as (shop, source):
        for shown in shop.state.random_orders(5):
            order_id = shop.kind.order_id(shown.number)

            found = await fetched(source, order_id)

            assert isinstance(found, Fetched), found.fault
            order = mapped(source, found.body, order_id)
            assert order.updated_at == shown.updated_at
            assert order.currency == "EUR"
            assert "total_difference" not in order.attributes


@with_each_kind
async def test_an_order_that_does_not_exist_is_not_found(kind: str) -> None:
    async with shop_and_source(kind) as (shop, source):
        found = await fetched(source, shop.kind.order_id(999_999))

        assert isinstance(found, Failed)
        assert isinstance(found.fault, PermanentFault)
        assert found.fault.reason is DeadReason.NOT_FOUND


@with_each_kind
async def test_a_wrong_credential_is_an_outage_and_not_the_fault_of_the_order(kind: str) -> None:
    async with shop_and_source(kind) as (shop, source):
        shop.site.behave(token="another:token", client="another:client")

        found = await fetched(source, shop.kind.order_id(1))

        assert isinstance(found, Failed)
        assert isinstance(found.fault, CredentialFault)


@pytest.mark.parametrize("kind", ["amazon", "amazon-v0"])
async def test_an_access_token_that_amazon_no_longer_accepts_is_renewed(kind: str) -> None:
    async with shop_and_source(kind) as (shop, source):
        order_id = shop.kind.order_id(1)
        async with UpstreamClient.open(source.endpoint, source.limits, metrics().upstream_request) as client:
            first = await client.fetch(FetchRequest(order_id))
            assert isinstance(first, Fetched)
            shop.site.revoke_tokens()

            async def is_fetched() -> bool:
                return isinstance(await client.fetch(FetchRequest(order_id)), Fetched)

            # A token of less than a second is not renewed.
            await eventually(is_fetched, within=10.0, every=0.1)


def test_the_list_of_amazon_has_a_quota_of_its_own_and_other_lists_share_that_of_the_orders() -> None:
    for kind, rate, name in (("amazon", 0.0055, "orders/shop:list"), ("woocommerce", 5.0, "orders/shop")):
        text = f"[sources.shop]\nkind = '{kind}'\n{KEYS[kind][1]}\nbase_url = 'https://shop.example'"
        Path("sources.toml").write_text(text)
        [settings] = source_settings(load_settings(sources="sources.toml")).values()

        listing = source_of(settings, {}).for_list

        assert (listing.quota.rate, listing.quota_name) == (rate, name)


@with_each_kind
async def test_the_list_contains_every_order_that_changed_since(kind: str) -> None:
    async with shop_and_source(kind, orders=270) as (shop, source):
        since = sorted(order.updated_at for order in shop.state.listed(None))[20]

        everything, later = await listed(source), await listed(source, since)

        expected = {shop.kind.order_id(order.number): order.updated_at for order in shop.state.listed(None)}
        assert {order.order_id: order.updated_at for order in everything} == expected
        assert {order.order_id for order in later} >= {key for key, at in expected.items() if at >= since}
        assert all(at is None or at >= since - timedelta(seconds=2) for at in (order.updated_at for order in later))


@with_each_kind
async def test_a_list_of_whole_orders_contains_the_same_orders_as_single_requests(kind: str) -> None:
    async with shop_and_source(kind, orders=5) as (_, source):
        for each in await listed(source):
            if each.document is None:
                continue
            found = await fetched(source, each.order_id)

            assert isinstance(found, Fetched)
            assert mapped(source, each.document, each.order_id) == mapped(source, found.body, each.order_id)


@pytest.mark.parametrize("kind", ["shopify", "shopify-rest", "woocommerce", "bigcommerce"])
async def test_a_webhook_of_the_shop_names_the_order(kind: str) -> None:
    async with SimulatedShop(KEYS[kind][0], orders=3) as shop:
        order = shop.state.random_orders(1)[0]
        sent = shop.kind.webhook("updated", order, SECRET.encode())
        assert sent is not None
        webhook = webhook_of(settings_of(kind, shop, "webhook.secret_files = ['secret']"))
        assert webhook is not None

        found = read_webhook(webhook, CIMultiDict(sent.headers), sent.body, datetime.now(UTC).timestamp())

        assert found is not None
        assert found.announcements[0].order_id == shop.kind.order_id(order.number)
