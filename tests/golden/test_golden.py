"""Mappings read the published examples of real shops, and simulated shops send the members and types of these examples."""

from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from ingest.lab.shops.shop_site import ShopSite
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.mapping.load import load_mapping

ORDERS = 300
_GOLDEN = {file.stem: msgspec.json.decode(file.read_bytes()) for file in Path(__file__).parent.glob("*.json")}
_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}
_CREDENTIALS: Mapping[str, Callable[[ShopSite], tuple[str, str]]] = {
    "amazon": lambda site: ("x-amz-access-token", site.issue_token("Atza|")),
    "bigcommerce": lambda site: ("X-Auth-Token", site.behaviour.token),
    "magento": lambda site: ("Authorization", f"Bearer {site.behaviour.token}"),
    "shopify-rest": lambda site: ("X-Shopify-Access-Token", site.behaviour.token),
    "woocommerce": lambda site: ("Authorization", aiohttp.encode_basic_auth(*site.behaviour.token.split(":"))),
}


@pytest.mark.parametrize("name", sorted(_GOLDEN))
async def test_a_simulated_shop_sends_documented_members_with_documented_types(name: str) -> None:
    golden = _GOLDEN[name]

    served, headers = await responses(golden)

    assert {*golden["headers"]} <= headers
    assert differences(golden, served) == {name: golden[name] for name in ("undocumented", "other_types", "absent")}


@pytest.mark.parametrize("name", sorted(_GOLDEN))
def test_a_mapping_reads_the_published_example(name: str) -> None:
    golden = _GOLDEN[name]
    document, *parts = golden["example"].values()
    names = [*golden["example"]][1:]
    lists = [part if isinstance(part, list) else part["payload"]["OrderItems"] for part in parts]
    row = golden["row"]

    order = load_mapping(golden["mapping"]).decode(
        msgspec.json.encode({**document, "parts": dict(zip(names, lists, strict=True))}), row["id"]
    )

    assert (order.id, order.status, order.currency) == (row["id"], row["status"], row["currency"])
    assert (order.placed_at, order.updated_at) == tuple(
        map(datetime.fromisoformat, (row["placed_at"], row["updated_at"]))
    )
    assert (order.customer_id, order.country) == (row["customer_id"], row["country"])
    assert order.total == Decimal(row["total"])
    assert msgspec.json.decode(order.attributes_json()).get("total_difference") == row.get("difference")
    lines = [(line.sku, line.quantity, line.unit_price) for line in order.lines[: len(row["lines"])]]
    assert lines == [(sku, quantity, Decimal(price)) for sku, quantity, price in row["lines"]]


async def responses(golden: dict[str, Any]) -> tuple[list[dict[str, Any]], set[str]]:
    """Responses of the simulated shop by the names of their requests, and the names of all headers."""
    behaviour = {"rate_limit": 1e6, "rate_burst": 1_000_000}
    shop = SimulatedShop(golden["shop"], orders=ORDERS, seed=1, changes=behaviour)
    found, headers = [], set[str]()
    async with shop, aiohttp.ClientSession() as session:
        for order in shop.state.random_orders(ORDERS):
            shop.state.change(order, quiet=True)
        header, value = _CREDENTIALS[golden["shop"]](shop.site)
        for number in range(1, ORDERS + 1):
            for name, request in golden["requests"].items():
                method, _, path = request.replace("{id}", shop.kind.order_id(number)).partition(" ")
                async with session.request(method, shop.base_url + path, headers={header: value}) as response:
                    headers |= {*response.headers}
                    if name and response.status == 200:
                        found.append({name: await response.json()})
    return found, headers


def differences(golden: dict[str, Any], served: list[dict[str, Any]]) -> dict[str, Any]:
    """Members that the documentation or the simulated shop lacks, and types of members that the documentation lacks."""
    documented, members = members_of([golden["example"]]), members_of(served)
    for path, types in golden.get("members", {}).items():
        documented.setdefault(path, set()).update(types.split())
    other = {path: sorted(types - documented[path]) for path, types in members.items() if path in documented}
    return {
        "undocumented": sorted({*members} - {*documented}),
        "other_types": {path: types for path, types in sorted(other.items()) if types},
        "absent": sorted({*documented} - {*members}),
    }


def members_of(documents: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The types of each member by its path, such as `order.line_items[].sku`."""
    found = defaultdict[str, set[str]](set)

    def note(path: str, value: object) -> None:
        found[path].add(_TYPES.get(type(value), "null"))
        if isinstance(value, dict):
            for name, member in value.items():
                note(f"{path}.{name}", member)
        elif isinstance(value, list):
            for element in value:
                note(f"{path}[]", element)

    for document in documents:
        for name, member in document.items():
            note(name, member)
    return found
