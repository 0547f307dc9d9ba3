"""Simulated shops send the members and types that the documentation of the real shop shows."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from ingest.lab.shops.simulated_shop import SimulatedShop

_TYPES = {dict: "object", list: "array", str: "string", bool: "boolean", int: "number", float: "number"}


async def test_woocommerce_sends_documented_members_with_documented_types() -> None:
    golden = msgspec.json.decode(Path(__file__).with_name("woocommerce.json").read_bytes())
    documented = {
        path: {*types.split(), *golden["other_types"].get(path, "").split()}
        for path, types in golden["members"].items()
    }
    method, _, path = golden["request"].partition(" ")

    async with SimulatedShop("woocommerce", orders=300, seed=1) as shop, aiohttp.ClientSession() as session:
        for order in shop.state.random_orders(300):
            shop.state.change(order, quiet=True)
        authorization = aiohttp.encode_basic_auth(*shop.site.behaviour.token.split(":"))
        async with session.request(method, shop.base_url + path, headers={"Authorization": authorization}) as response:
            served = members_of(await response.json())
            headers = response.headers

    assert set(golden["headers"]) <= set(headers)
    assert set(documented) - set(served) == set(golden["absent"])
    assert set(served) - set(documented) == set(golden["undocumented"])
    assert {path: types for path, types in served.items() if not types <= documented.get(path, types)} == {}


def members_of(documents: list[dict[str, Any]]) -> dict[str, set[str]]:
    """The types of each member by its path, such as `line_items[].sku`."""
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
