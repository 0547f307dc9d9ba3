"""The lists that are read: those of the known kinds, and of an API without a kind with each form of paging. Pages are small."""

import json
import tomllib
from collections.abc import Callable, Mapping
from functools import cache
from importlib.resources import files
from types import SimpleNamespace
from typing import Any, NamedTuple

from ingest.lab.shops.kinds.amazon_documents import order_2026
from ingest.lab.shops.kinds.magento_documents import magento_order
from ingest.lab.shops.kinds.shopify.rest_documents import rest_order
from ingest.lab.shops.kinds.woocommerce_documents import woocommerce_order
from ingest.lab.shops.orders import ShopOrder
from ingest.sources.order_lists import list_of
from ingest.upstream.access.endpoint import Endpoint
from ingest.upstream.http.transport import UpstreamLimits
from ingest.upstream.lists.order_list import ListOptions

URL = "http://shop.test"
_VALUES = {
    "base_url": URL,
    "version": "2026-07",
    "store_hash": "simulated",
    "marketplaces": "A1PA6795UKMFR9",
    "included_data": "PROCEEDS",
}
_BEARER = {"Authorization": "Bearer simulated-token"}


class Shape(NamedTuple):
    """A list, and the shop that has it.

    Attributes:
        kind: of the simulated shop.
        headers: with the credential.
        source: the file of the known kind, or empty.
        table: the description of the list of an API without a kind.
        render: the document in the list, if the list contains whole ones.
        says_end: whether the shop says where the list ends. Otherwise, an empty page is the end.
    """

    kind: str
    headers: Mapping[str, str]
    source: str = ""
    table: Mapping[str, object] = {}
    render: Callable[[ShopOrder], Any] | None = None
    says_end: bool = True


_PLAIN = f"{URL}/orders?since={{since}}&until={{until}}&limit={{size}}"

SHAPES = {
    "plain by cursor": Shape("plain", _BEARER, table={"url": _PLAIN + "&cursor={cursor}", "next": "next"}),
    "plain by cursor, sorted": Shape(
        "plain", _BEARER, table={"url": _PLAIN + "&cursor={cursor}", "next": "next", "ascending": True}
    ),
    "plain by link": Shape("plain", _BEARER, table={"url": _PLAIN, "next": "link"}),
    "plain by page": Shape(
        "plain", _BEARER, table={"url": _PLAIN + "&page={cursor}", "next": "page", "ascending": True}, says_end=False
    ),
    "plain by page with total": Shape(
        "plain",
        _BEARER,
        table={"url": _PLAIN + "&page={cursor}", "next": "page", "ascending": True, "total": "total"},
    ),
    "plain by offset": Shape(
        "plain",
        _BEARER,
        table={"url": _PLAIN + "&offset={cursor}", "next": "offset", "ascending": True},
        says_end=False,
    ),
    "shopify": Shape("shopify", {"X-Shopify-Access-Token": "shpat_simulated"}, "shopify"),
    "shopify-rest": Shape(
        "shopify-rest", {"X-Shopify-Access-Token": "shpat_simulated"}, "shopify-rest", render=rest_order
    ),
    "woocommerce": Shape(
        "woocommerce",
        {"Authorization": "Basic Y2tfc2ltdWxhdGVkOmNzX3NpbXVsYXRlZA=="},
        "woocommerce",
        render=lambda order: woocommerce_order(order, URL),
    ),
    "bigcommerce": Shape("bigcommerce", {"X-Auth-Token": "simulated-token"}, "bigcommerce", says_end=False),
    "magento": Shape("magento", _BEARER, "magento", render=magento_order),
    "amazon": Shape("amazon", {}, "amazon", render=lambda order: order_2026(order, frozenset({"PROCEEDS"}))),
}
_SIZES = ("per_page=100", "limit=250", "[pageSize]=100", "maxResultsPerPage=100")


@cache
def options_of(name: str, size: int, overlap: float, time: str) -> ListOptions:
    """Return a list with pages of this size.

    Args:
        name: of the shape.
        size: elements of a page.
        overlap: seconds that a poll reads again.
        time: format of times in the lists of an API without a kind. Empty for ISO 8601.
    """
    table = {**_table(name, size, time), "overlap": overlap, "rate": 0.0, "amount": ""}
    settings: Any = SimpleNamespace(order_list=json.dumps(table), poll=None, source="", upstream_rate_header=None)
    found = list_of(settings, Endpoint(URL), UpstreamLimits(1.0, 1.0, 1.0, 1 << 25, 1), {})
    assert found is not None
    return found


def _table(name: str, size: int, time: str) -> dict[str, Any]:
    shape = SHAPES[name]
    if not shape.source:
        return {**shape.table, "size": size, "items": "orders", "time": time or "iso"}
    text = files("ingest.sources").joinpath("kinds", f"{shape.source}.toml").read_text("utf-8")
    found = json.dumps(tomllib.loads(text)["source"]["list"])
    for key, value in _VALUES.items():
        found = found.replace("{" + key + "}", value)
    for usual in _SIZES:
        found = found.replace(usual, usual.rstrip("0123456789") + str(size))
    table: dict[str, Any] = json.loads(found)
    return table | ({"size": size} if "size" in table else {})
