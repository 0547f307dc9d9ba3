"""The list endpoints of the three shops, with their paths, the parameter for the IDs and the text around the orders."""

from typing import NamedTuple


class ShopList(NamedTuple):
    """How one shop serves several orders.

    Attributes:
        template: path and query, with `{order_ids}`.
        path: the path without the query.
        parameter: name of the parameter for the IDs, which are separated by commas.
        envelope: name of the member around a single order that is absent in a list, or empty.
        around: the response before and after the orders.
    """

    template: str
    path: bytes
    parameter: bytes
    envelope: str
    around: tuple[bytes, bytes]


SHOP_LISTS = {
    "shopify": ShopList(
        "/admin/api/2026-07/orders.json?status=any&limit=250&ids={order_ids}",
        b"/admin/api/2026-07/orders.json",
        b"ids",
        "order",
        (b'{"orders":[', b"]}"),
    ),
    "woocommerce": ShopList(
        "/wp-json/wc/v3/orders?per_page=100&include={order_ids}",
        b"/wp-json/wc/v3/orders",
        b"include",
        "",
        (b"[", b"]"),
    ),
    "amazon": ShopList(
        "/orders/v0/orders?AmazonOrderIds={order_ids}",
        b"/orders/v0/orders",
        b"AmazonOrderIds",
        "payload",
        (b'{"payload":{"Orders":[', b"]}}"),
    ),
}
"""The list endpoints by the value of `shape` in the behaviour."""
