"""The simulated API serves its orders like three shops, and the mappings restore the original orders."""

from collections.abc import Iterator
from functools import cache
from itertools import islice
from random import Random
from typing import Any

import msgspec
import pytest

from ingest.domain.orders.order import Order, decode_order
from ingest.lab.upstream.behaviour import Behaviour
from ingest.lab.upstream.samples import sample_orders
from ingest.lab.upstream.site import Site
from ingest.mapping.load import load_mapping

PATHS = {
    "shopify": "/admin/api/2026-07/orders/{}.json",
    "woocommerce": "/wp-json/wc/v3/orders/{}",
    "amazon": "/orders/v0/orders/{}",
}


@cache
def orders() -> dict[str, bytes]:
    """A share of the bundled orders of all kinds, which are in chronological order."""
    return dict(islice(sample_orders().items(), 0, None, 50))


def site(shop: str) -> Site:
    return Site(orders(), Behaviour(shape=shop), Random(1))  # type: ignore[arg-type]  # one of the shapes


def fetched(site: Site, path: str, query: str = "") -> bytes:
    assert site.shape is not None
    asked = site.shape.requested(path.encode(), query.encode())
    assert asked is not None
    answer, _ = site.shaped(asked, None)
    assert answer is not None
    assert answer.label == "200"
    return answer.payload.partition(b"\r\n\r\n")[2]


def document(shop: str, site: Site, order_id: str) -> bytes:
    body = fetched(site, PATHS[shop].format(order_id))
    if shop != "amazon":
        return body
    items = list(amazon_items(site, order_id))
    return msgspec.json.encode(msgspec.json.decode(body) | {"parts": {"order_items": items}})


def amazon_items(site: Site, order_id: str) -> Iterator[Any]:
    query = ""
    while True:
        page = msgspec.json.decode(fetched(site, f"/orders/v0/orders/{order_id}/orderItems", query))["payload"]
        assert len(page["OrderItems"]) <= 25
        yield from page["OrderItems"]
        if "NextToken" not in page:
            return
        query = f"NextToken={page['NextToken']}"


def content(order: Order) -> tuple[object, ...]:
    """The fields that every shape keeps. Prices without a quantity are lost if lines only have totals."""
    lines = [
        (line.sku, line.quantity, line.unit_price if line.quantity else 0, line.description or None)
        for line in order.lines
    ]
    return order.id, order.currency, order.placed_at, order.total, lines


@pytest.mark.parametrize("shop", PATHS)
def test_what_a_shop_serves_is_mapped_to_the_order_that_it_was(shop: str) -> None:
    served, mapping = site(shop), load_mapping(shop)

    for order_id, body in orders().items():
        ours, theirs = decode_order(body, order_id), mapping.decode(document(shop, served, order_id), order_id)

        assert content(theirs) == content(ours)
        assert theirs.updated_at == ours.placed_at
        if shop != "amazon":
            assert theirs.customer_id == ours.customer_id
        assert ("cancel" in theirs.status.lower()) == (ours.status == "cancelled")


def test_an_order_that_was_replaced_is_served_as_it_is() -> None:
    served, order_id = site("shopify"), next(iter(orders()))
    served.catalogue.put(f"/orders/{order_id}".encode(), b'{"order": 7}')

    assert document("shopify", served, order_id) == b'{"order": 7}'


@pytest.mark.parametrize(
    ("shop", "value"),
    [
        ("shopify", b"secret"),
        ("amazon", b"secret"),
        ("woocommerce", b"Basic c2VjcmV0"),
        ("woocommerce", b"Bearer secret"),
    ],
)
def test_the_credential_is_where_the_shop_expects_it(shop: str, value: bytes) -> None:
    shape = site(shop).shape

    assert shape is not None
    assert shape.bearer(value) == b"Bearer secret"


def test_only_paths_of_orders_are_served_in_the_shape() -> None:
    shape = site("shopify").shape

    assert shape is not None
    assert shape.requested(b"/admin/api/2026-07/orders/1/refunds.json", b"") is None
    assert shape.requested(b"/behaviour", b"") is None
