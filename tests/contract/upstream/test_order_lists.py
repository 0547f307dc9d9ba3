"""Lists of orders, read page by page from a real HTTP server."""

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from fakes.workers import metrics
from scripted_http import Received, ScriptedServer, http, scripted_server

from ingest.domain.errors import Fault, ListFault, ThrottledFault
from ingest.domain.fetch.listed import ListedPage
from ingest.domain.fetch.reading import Reading
from ingest.operations.list_pages import pages_of
from ingest.settings import load_settings
from ingest.sources.from_settings import source_of
from ingest.upstream.lists.links import next_link
from ingest.upstream.lists.order_list import HttpOrderList

SINCE = datetime(2026, 10, 1, 12, 0, 0, 500_000, UTC)


@pytest.fixture
async def shop() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


@asynccontextmanager
async def list_at(shop: ScriptedServer, url: str, **described: Any) -> AsyncIterator[HttpOrderList]:
    settings = load_settings(
        upstream_url=f"{shop.url}/orders/{{order_id}}",
        upstream_token="t0ken",
        order_list=json.dumps({"url": shop.url + url, **described}),
    )
    options = source_of(settings, {}).order_list
    assert options is not None
    async with HttpOrderList.open(options, metrics().upstream_request) as orders:
        yield orders


async def pages(orders: HttpOrderList, until: datetime | None = None) -> list[ListedPage]:
    reading = Reading(orders.shape, SINCE, until, read_again=timedelta())
    return [page async for page, _ in pages_of(orders, reading, pause_after=lambda _fault, _failures: None)]


def ids(found: list[ListedPage]) -> list[list[str]]:
    return [[order.order_id for order in page.orders] for page in found]


def elements(*order_ids: object) -> list[dict[str, Any]]:
    return [{"id": each, "updated_at": "2026-10-01T12:00:01Z"} for each in order_ids]


def json_of(value: Any, **headers: str) -> bytes:
    return http(200, json.dumps(value).encode(), **headers)


def query(received: Received) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(received.line.split()[1]).query, keep_blank_values=True))


async def test_the_next_page_is_found_by_the_link_header(shop: ScriptedServer) -> None:
    last = '<https://other/?page=9>; rel="last", '
    shop.answer(
        json_of(elements(1, 2), link=f'{last}<{shop.url}/orders?page_info=a%2Fb,c>; title="x, y"; rel="prev next"'),
        json_of(elements(3), link=f"<{shop.url}/orders?page_info=0>; rel=previous"),
    )

    async with list_at(shop, "/orders?since={since}&until={until}&status=any", next="link") as orders:
        found = await pages(orders)

    assert ids(found) == [["1", "2"], ["3"]]
    # Inclusive, even if the list is not. Without an end, its parameter is left out.
    assert query(shop.received[0]) == {"since": "2026-10-01T11:59:59Z", "status": "any"}
    assert query(shop.received[1]) == {"page_info": "a/b,c"}
    assert {received.headers["authorization"] for received in shop.received} == {"Bearer t0ken"}
    assert found[0].next == "/orders?page_info=a%2Fb,c"


async def test_a_page_at_another_origin_is_refused(shop: ScriptedServer) -> None:
    shop.answer(json_of(elements(1), link="<https://evil.example/orders?page=2>; rel=next"))

    async with list_at(shop, "/orders?since={since}", next="link") as orders:
        with pytest.raises(ListFault, match=r"leads to another origin, https://evil\.example:443"):
            await pages(orders)

    assert len(shop.received) == 1


async def test_the_next_page_is_found_by_a_token_in_the_body(shop: ScriptedServer) -> None:
    shop.answer(
        json_of({"data": {"orders": elements(1)}, "paging": {"next": "t/1&x"}}),
        json_of({"data": {"orders": elements(2)}, "paging": {"next": None}}),
    )

    url = "/orders?since={since}&until={until}&token={cursor}"
    async with list_at(shop, url, items="data.orders", next="paging.next") as orders:
        found = await pages(orders, until=SINCE + timedelta(hours=1))

    assert ids(found) == [["1"], ["2"]]
    period = {"since": "2026-10-01T11:59:59Z", "until": "2026-10-01T13:00:02Z"}
    assert [query(each) for each in shop.received] == [period, {**period, "token": "t/1&x"}]


async def test_the_next_page_is_found_by_a_url_in_the_body(shop: ScriptedServer) -> None:
    shop.answer(
        json_of({"orders": elements(1), "next": "/orders?page=2"}), json_of({"orders": elements(2), "next": ""})
    )

    async with list_at(shop, "/orders?since={since}", next="next") as orders:
        assert ids(await pages(orders)) == [["1"], ["2"]]

    assert query(shop.received[1]) == {"page": "2"}


@pytest.mark.parametrize(
    ("described", "bodies"),
    [
        ({}, [elements(1, 2), elements(3), []]),
        ({"size": 2}, [elements(1, 2), elements(3), []]),
        ({"total": "count"}, [{"o": elements(1, 2), "count": 3}, {"o": elements(3), "count": 3}]),
        ({"total_pages": "pages"}, [{"o": elements(1, 2), "pages": "2"}, {"o": elements(3), "pages": "2"}]),
    ],
)
async def test_pages_are_numbered_until_the_last_one(
    shop: ScriptedServer, described: dict[str, Any], bodies: list[Any]
) -> None:
    shop.answer(*map(json_of, bodies), http(500))

    async with list_at(shop, "/orders?since={since}&page={cursor}", next="page", **described) as orders:
        await pages(orders)

    assert [query(each)["page"] for each in shop.received] == [str(number + 1) for number in range(len(bodies))]


async def test_offsets_count_all_elements(shop: ScriptedServer) -> None:
    shop.answer(json_of(elements(1, "", 3)), json_of(elements(4)), json_of([]))

    async with list_at(shop, "/orders?since={since}&offset={cursor}", next="offset") as orders:
        assert ids(await pages(orders)) == [["1", "3"], ["4"], []]

    assert [query(each)["offset"] for each in shop.received] == ["0", "3", "4"]


async def test_a_graphql_list_has_its_values_in_the_body(shop: ScriptedServer) -> None:
    def page(number: int, cursor: str, *, more: bool) -> bytes:
        node = {"id": f"gid://shopify/Order/{number}", "updatedAt": "2026-10-01T12:00:01Z"}
        info = {"hasNextPage": more, "endCursor": cursor}
        return json_of({"data": {"orders": {"nodes": [node], "pageInfo": info}}})

    shop.answer(page(1, 'a"\\b', more=True), page(2, "c", more=False))
    described = {
        "body": {
            "query": "query($q: String) { orders }",
            "variables": {"q": "updated_at:>'{since}'", "after": "{cursor}"},
        },
        "items": "data.orders.nodes",
        "updated_at": "updatedAt",
        "remove_prefix": "gid://shopify/Order/",
        "next": "data.orders.pageInfo.endCursor",
        "more": "data.orders.pageInfo.hasNextPage",
    }

    async with list_at(shop, "/graphql.json", **described) as orders:
        assert ids(await pages(orders)) == [["1"], ["2"]]

    bodies = [json.loads(each.body)["variables"] for each in shop.received]
    assert bodies == [
        {"q": "updated_at:>'2026-10-01T11:59:59Z'", "after": None},
        {"q": "updated_at:>'2026-10-01T11:59:59Z'", "after": 'a"\\b'},
    ]
    assert {(each.line.split()[0], each.headers["content-type"]) for each in shop.received} == {
        ("POST", "application/json")
    }


class Changing:
    """A list sorted by time, in which the first order changes after each page, so that all others move."""

    def __init__(self, count: int, size: int) -> None:
        start = datetime(2026, 10, 1, 12, 0, 1, tzinfo=UTC)
        self.orders = {str(number): start + timedelta(seconds=number) for number in range(count)}
        self.size = size
        self.changes = 6

    def __call__(self, received: Received) -> bytes:
        values = query(received)
        since = datetime.fromisoformat(values["since"])
        found = sorted((at, each) for each, at in self.orders.items() if at >= since)
        number = int(values["page"]) - 1
        shown = found[number * self.size : (number + 1) * self.size]
        if self.changes:
            self.changes -= 1
            order_id = found[0][1]
            self.orders[order_id] = max(self.orders.values()) + timedelta(seconds=1)
        return json_of([{"id": each, "updated_at": at.isoformat()} for at, each in shown])


async def test_a_sorted_list_is_read_completely_while_it_changes(shop: ScriptedServer) -> None:
    shop.answer(Changing(40, 5))

    url = "/orders?since={since}&page={cursor}"
    async with list_at(shop, url, next="page", size=5, ascending=True) as orders:
        found = ids(await pages(orders))

    assert {each for page in found for each in page} == {str(number) for number in range(40)}


async def test_bulk_edits_that_fill_several_pages_in_each_second_are_read_completely(shop: ScriptedServer) -> None:
    bulk = Changing(0, 10)
    bulk.changes = 0
    bulk.orders = {
        f"{second}-{number}": SINCE + timedelta(seconds=second) for second in range(-2, 4) for number in range(25)
    }
    shop.answer(bulk)

    url = "/orders?since={since}&page={cursor}"
    async with list_at(shop, url, next="page", size=10, ascending=True) as orders:
        found = ids(await pages(orders))

    assert {each for page in found for each in page} >= {each for each, at in bulk.orders.items() if at >= SINCE}
    assert len(found) < 50


async def test_an_empty_list_may_be_a_204(shop: ScriptedServer) -> None:
    shop.answer(http(204, date="Fri, 27 Nov 2026 18:00:00 GMT"))

    async with list_at(shop, "/orders?since={since}&page={cursor}", next="page") as orders:
        assert await pages(orders) == [ListedPage((), has_more=False, sent_at=datetime(2026, 11, 27, 18, tzinfo=UTC))]


async def test_elements_without_an_id_are_counted(shop: ScriptedServer) -> None:
    body = [*elements(1, None, True, [], " x", 2**70), {}, 7, {"id": 3, "updated_at": "soon"}, {"id": 4}]
    shop.answer(json_of(body))

    async with list_at(shop, "/orders?since={since}") as orders:
        (page,) = await pages(orders)

    assert [(order.order_id, order.updated_at is not None) for order in page.orders] == [
        ("1", True),
        (str(2**70), True),
        ("3", False),
        ("4", False),
    ]
    assert len(page.unusable) == 6


async def test_amounts_are_read_exactly_and_unreadable_ones_are_no_fault(shop: ScriptedServer) -> None:
    amounts = [
        b'"19.90"',
        b"0.1000000000000000055511151231257827",
        b"-1.5e2",
        b" 7 ",
        b"null",
        b'""',
        b'"1,50"',
        b"true",
        b"{}",
        b"1e31",
        b'"NaN"',
    ]
    listed = [b'{"id": %d, "total": {"amount": %s}}' % (number, each) for number, each in enumerate(amounts)]
    shop.answer(http(200, b"[" + b", ".join([*listed, b'{"id": 98}', b'{"id": 99, "total": 1}']) + b"]"))

    async with list_at(shop, "/orders?since={since}", amount="total.amount") as orders:
        (page,) = await pages(orders)

    exact = ["19.90", "0.1000000000000000055511151231257827", "-1.5E+2", "7"]
    unreadable = ["NaN"] * 5
    assert [str(order.amount) for order in page.orders] == [*exact, "None", "None", *unreadable, "None", "None"]


async def test_amounts_in_minor_units_are_converted_as_a_mapping_does(shop: ScriptedServer) -> None:
    amounts = [("1990", "EUR"), ("1990", "JPY"), ("-1", "BHD"), ("5", None)]
    shop.answer(json_of([{"id": n, "sum": {"of": each[0], "in": each[1]}} for n, each in enumerate(amounts)]))
    described = {"amount": {"path": "sum.of", "minor_units": "currency", "currency": "sum.in"}}

    async with list_at(shop, "/orders?since={since}", **described) as orders:
        (page,) = await pages(orders)

    assert [str(order.amount) for order in page.orders] == ["19.90", "1990", "-0.001", "0.05"]


async def test_complete_elements_are_documents_byte_for_byte(shop: ScriptedServer) -> None:
    shop.answer(http(200, b' {"a": 1, "orders" : [ {"id":1, "total": 1.10} ,\n{"id":2}]}'))

    async with list_at(shop, "/orders?since={since}", complete=True) as orders:
        (page,) = await pages(orders)

    assert [order.document for order in page.orders] == [b'{"id":1, "total": 1.10}', b'{"id":2}']


@pytest.mark.parametrize(
    ("body", "items", "error"),
    [
        (b"<html>", "", "no array in it, but a number or no JSON"),
        (b"[1, <html>]", "", "malformed"),
        (b'"text"', "", "no array in it, but a text"),
        (b"{}", "", "no array in it, but an object"),
        (b'{"a": [], "b": []}', "", "2 arrays: set `items`"),
        (b'{"data": null, "errors": [{"message": "s3cret"}]}', "data.orders", "no array at 'data.orders', but nothing"),
        (b'{"data": {"orders": {"nodes": []}}}', "data.orders", "no array at 'data.orders', but an object"),
        (b"[" * 100_000 + b"]" * 100_000, "", "nested too deeply|recursion"),
        (b"[\xff]", "", "invalid"),
    ],
)
async def test_a_body_that_is_no_list_is_a_fault_of_the_list(
    shop: ScriptedServer, body: bytes, items: str, error: str
) -> None:
    shop.answer(http(200, body))

    async with list_at(shop, "/orders?since={since}", items=items) as orders:
        with pytest.raises(ListFault, match=error) as caught:
            await pages(orders)

    assert "s3cret" not in str(caught.value)


async def test_pages_that_repeat_end_the_reading(shop: ScriptedServer) -> None:
    shop.answer(json_of({"orders": elements(1), "next": "t"}))

    async with list_at(shop, "/orders?since={since}&c={cursor}", next="next") as orders:
        with pytest.raises(ListFault, match="repeat"):
            await pages(orders)

    assert len(shop.received) == 2


async def test_a_page_is_tried_again_and_its_fault_is_the_usual_one(shop: ScriptedServer) -> None:
    shop.answer(http(500), http(502), json_of(elements(1)), http(429, retry_after="7"))

    async with list_at(shop, "/orders?since={since}") as orders:
        assert ids(await pages(orders)) == [["1"]]
        with pytest.raises(ThrottledFault) as caught:
            await pages(orders)

    assert caught.value.after == 7
    assert isinstance(caught.value, Fault)


async def test_a_large_page_is_read(shop: ScriptedServer) -> None:
    many = [{"id": number, "updated_at": "2026-10-01T12:00:01Z", "note": "x" * 1_000} for number in range(6_000)]
    shop.answer(json_of(many))

    async with list_at(shop, "/orders?since={since}", complete=True) as orders:
        (page,) = await pages(orders)

    assert len(page.orders) == 6_000


def test_headers_are_a_mapping_of_any_case() -> None:
    headers: Mapping[str, str] = {"Link": "<a>; rel=next"}
    assert next_link(headers) == "a"
