"""The modes of simulated shops, through the API of each kind."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from fakes.shop_transport import ShopTransport

from ingest.lab.shops.shop_modes import described_modes, parsed_modes
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.upstream.http.transport import NoDocument

START = datetime(2026, 11, 28, 12, 0, 30, tzinfo=UTC)


@dataclass
class Clock:
    now: datetime = START

    def __call__(self) -> datetime:
        return self.now


class Reader:
    """A WooCommerce shop or an API without a kind, with the responses to requests for its list."""

    def __init__(self, kind: str = "plain", orders: int = 10, **modes: object) -> None:
        self.clock = Clock()
        self.shop = SimulatedShop(kind, orders=orders, changes=modes, seed=1, clock=self.clock)
        self._transport = ShopTransport(self.shop)
        self.heads: list[Mapping[str, str]] = []

    async def get(self, path: str) -> Any:
        headers = {"Authorization": "Bearer simulated-token"}
        if path.startswith("/wp-json"):
            headers = {"Authorization": "Basic Y2tfc2ltdWxhdGVkOmNzX3NpbXVsYXRlZA=="}
        body = await self._transport.send(
            f"http://shop.test{path}", headers, on_head=lambda _, head: self.heads.append(head)
        )
        return msgspec.json.decode(body)

    async def page(self, query: str = "") -> dict[str, Any]:
        found: dict[str, Any] = await self.get(f"/orders?{query}")
        return found

    def change(self, number: int) -> None:
        order = self.shop.state.get(number)
        assert order is not None
        self.shop.state.change(order, quiet=True)


def ids(page: Mapping[str, Any]) -> Sequence[int]:
    return [int(order["id"]) for order in page["orders"]]


async def test_an_index_that_is_behind_keeps_the_place_of_a_changed_order_and_hides_a_new_one() -> None:
    reader = Reader(index_lag=5)
    reader.change(3)
    reader.shop.state.create(quiet=True)

    behind = await reader.page()
    reader.clock.now += timedelta(seconds=5)
    after = await reader.page()

    assert ids(behind) == [*range(1, 11)]
    assert behind["orders"][2]["updated_at"] == "2026-11-28T12:00:30Z"
    assert ids(after) == [1, 2, *range(4, 11), 3, 11]


async def test_a_page_is_cut_and_capped_after_its_orders_were_selected() -> None:
    reader = Reader("woocommerce", 10, left_out=4, page_cap=5)

    pages = [await reader.get(f"/wp-json/wc/v3/orders?per_page=100&order=asc&page={page}") for page in (1, 2, 3)]

    assert [[order["id"] for order in page] for page in pages] == [
        [1001, 1002, 1003, 1005],
        [1006, 1007, 1009, 1010],
        [],
    ]
    assert reader.heads[0]["X-WP-TotalPages"] == "2"


async def test_repeated_pages_have_ever_new_cursors() -> None:
    reader = Reader(repeats=True)
    pages = [await reader.page("limit=4")]
    for _ in range(5):
        pages.append(await reader.page(f"limit=4&cursor={pages[-1]['next']}"))

    assert {tuple(ids(page)) for page in pages} == {(1, 2, 3, 4)}
    assert len({page["next"] for page in pages}) == 6


async def test_an_order_breaks_each_page_that_contains_it_and_no_other() -> None:
    reader = Reader(breaking_id="6")

    with pytest.raises(NoDocument, match="500"):
        await reader.page("limit=5&page=2")

    assert ids(await reader.page("limit=5")) == [1, 2, 3, 4, 5]
    assert ids(await reader.page("limit=1&page=7")) == [7]
    assert (await reader.get("/orders/6"))["id"] == "6"


async def test_times_are_cut_and_written_in_the_chosen_format() -> None:
    reader = Reader(time_step=60, time_format="%d.%m.%Y %H:%M")
    reader.change(1)

    page = await reader.page("since=28.11.2026%2012:00")

    assert [(order["id"], order["updated_at"]) for order in page["orders"]] == [("1", "28.11.2026 12:00")]
    assert (await reader.get("/orders/1"))["updated_at"] == "2026-11-28T12:00:00Z"


async def test_a_replica_shows_the_past_in_lists_and_orders() -> None:
    reader = Reader(replica_lag=30)
    before = await reader.get("/orders/1")
    reader.change(1)
    reader.shop.state.create(quiet=True)

    assert await reader.get("/orders/1") == before
    assert ids(await reader.page()) == [*range(1, 11)]
    reader.clock.now += timedelta(seconds=30)
    assert ids(await reader.page()) == [*range(2, 11), 1, 11]


async def test_a_database_behind_its_web_server_writes_earlier_times_than_the_date() -> None:
    reader = Reader(database_behind=600)
    reader.change(1)

    order = await reader.get("/orders/1")

    assert order["updated_at"] == "2026-11-28T11:50:30Z"
    assert reader.heads[-1]["Date"] == "Sat, 28 Nov 2026 12:00:30 GMT"


def test_modes_are_read_from_the_command_line_and_described() -> None:
    assert parsed_modes(["index_lag=2", "repeats=true"]) == {"index_lag": 2.0, "repeats": True}
    with pytest.raises(ValueError, match="nope"):
        parsed_modes(["nope=1"])
    assert all(described_modes().values())
