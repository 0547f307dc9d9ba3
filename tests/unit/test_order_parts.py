"""Orders whose lists require separate requests are complete, or a fault."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from fakes.upstream import delivered, response

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import Fault, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import Exchange, FetchRequest
from ingest.domain.fetch.pages import PageRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.domain.orders.order import InvalidDocument
from ingest.mapping.compiled.declaration import PartDeclaration
from ingest.mapping.errors import MappingError
from ingest.mapping.parts import join
from ingest.mapping.query_parts import part_of
from ingest.upstream.parts import PartsClient

ASKED_AT = datetime(2026, 1, 30, tzinfo=UTC)
REQUEST = FetchRequest("a:1")
BY_TOKEN = PartDeclaration(
    url="/orders/{order_id}/items", items="payload.items", next="payload.token", next_parameter="page token"
)
BY_URL = PartDeclaration(url="/orders/{order_id}/items?limit=2", items="items", next="links.next")
BY_NUMBER = PartDeclaration(url="./{order_id}/items?limit=2", items="$", page_parameter="page", page_size=2)
BY_QUERY = PartDeclaration(
    body={"query": "order(id: $id)", "variables": {"id": "gid://{order_id}", "first": 2, "after": "{cursor}"}},
    items="data.items.nodes",
    next="data.items.page.cursor",
    more="data.items.page.more",
    in_order=True,
)
FIRST = "/orders/a%3A1/items"


class Api:
    """An API that sends scripted responses by target. The order itself is at the empty target."""

    def __init__(self, answers: dict[str, Any]) -> None:
        self._answers = answers
        self.asked: list[str] = []
        self.asked_once: list[str] = []

    async def fetch(self, request: FetchRequest) -> Fetched | Failed:
        return await self.fetch_page(request, PageRequest(""))

    async def fetch_once(self, request: FetchRequest) -> Fetched | Failed:
        self.asked_once.append("")
        return await self.fetch_page(request, PageRequest(""))

    async def fetch_page(self, request: FetchRequest, page: PageRequest) -> Fetched | Failed:
        target = page.target if page.body is None else page.body.decode()
        self.asked.append(target)
        answer = self._answers[target]
        given = answer if isinstance(answer, bytes | Fault) else json.dumps(answer).encode()
        return response(request, given, ASKED_AT)


def client(api: Api, part: PartDeclaration = BY_TOKEN, limit: int = 10_000) -> PartsClient:
    return PartsClient(api, api.fetch_page, [part_of("items", part)], join, limit)


async def fault_of(answers: dict[str, Any], part: PartDeclaration = BY_TOKEN, limit: int = 10_000) -> Fault:
    result = await client(Api({"": {"id": "a:1"}} | answers), part, limit).fetch(REQUEST)
    assert isinstance(result, Failed)
    assert result.exchange.requests == (REQUEST,)
    return result.fault


async def test_pages_are_followed_by_token_and_joined_with_every_digit() -> None:
    api = Api(
        {
            "": b' {"id": "a:1", "total": 1.10} ',
            FIRST: b'{"payload": {"items": [{"price": 1.10, "id": 12345678901234567890123}], "token": "x=/ 1"}}',
            f"{FIRST}?page%20token=x%3D%2F%201": b'{"payload": {"items": [], "token": 7}}',
            f"{FIRST}?page%20token=7": b'{"payload": {"items": [{"price": 2E+3}], "token": null}}',
        }
    )

    fetched = await delivered(client(api).fetch(REQUEST))

    assert fetched.body == (
        b'{"id": "a:1", "total": 1.10,"parts":{"items":[{"price":1.10,"id":12345678901234567890123},{"price":2E+3}]}}'
    )
    assert fetched.requested_at == ASKED_AT
    assert len(api.asked) == 4


async def test_pages_are_followed_by_url() -> None:
    first = f"{FIRST}?limit=2"
    api = Api(
        {
            "": {"id": "a:1"},
            first: {"items": [1], "links": {"next": "https://shop.example/more"}},
            "https://shop.example/more": {"items": [2], "links": {}},
        }
    )

    fetched = await delivered(client(api, BY_URL).fetch(REQUEST))

    assert msgspec.json.decode(fetched.body) == {"id": "a:1", "parts": {"items": [1, 2]}}


async def test_pages_are_followed_by_number_until_one_is_not_full() -> None:
    first = "./a%3A1/items?limit=2"
    api = Api({"": {"id": "a:1"}, first: [1, 2], f"{first}&page=2": [3, 4], f"{first}&page=3": []})

    fetched = await delivered(client(api, BY_NUMBER).fetch(REQUEST))

    assert msgspec.json.decode(fetched.body) == {"id": "a:1", "parts": {"items": [1, 2, 3, 4]}}


def queried(cursor: str | None) -> str:
    """The body of the request for a page."""
    after = "null" if cursor is None else f'"{cursor}"'
    return '{"query":"order(id: $id)","variables":{"id":"gid://a:1","first":2,"after":' + after + "}}"


def queried_page(items: list[int], cursor: str | None) -> dict[str, Any]:
    """A page that ends with a cursor, as each does in GraphQL."""
    return {"data": {"items": {"nodes": items, "page": {"cursor": cursor or "end", "more": cursor is not None}}}}


async def test_an_order_that_contains_its_only_page_costs_one_request() -> None:
    api = Api({"": queried_page([1, 2], None)})

    fetched = await delivered(client(api, BY_QUERY).fetch(REQUEST))

    assert msgspec.json.decode(fetched.body) == queried_page([1, 2], None)
    assert api.asked == [""]


async def test_further_pages_are_queried_by_cursor_and_joined_without_the_first() -> None:
    api = Api(
        {
            "": queried_page([1, 2], 'x"1'),
            queried('x\\"1'): queried_page([3, 4], "x2"),
            queried("x2"): queried_page([5], None),
        }
    )

    fetched = await delivered(client(api, BY_QUERY).fetch(REQUEST))

    assert msgspec.json.decode(fetched.body) == queried_page([1, 2], 'x"1') | {"parts": {"items": [3, 4, 5]}}


async def test_the_first_page_is_queried_without_a_cursor_if_the_order_does_not_contain_it() -> None:
    api = Api({"": {"id": "a:1"}, queried(None): queried_page([1], None)})

    fetched = await delivered(client(api, msgspec.structs.replace(BY_QUERY, in_order=False)).fetch(REQUEST))

    assert msgspec.json.decode(fetched.body) == {"id": "a:1", "parts": {"items": [1]}}


@pytest.mark.parametrize("document", [{"data": None}, {"data": {"items": 7}}, [1]])
async def test_an_order_without_its_list_is_left_to_the_mapping(document: Any) -> None:
    api = Api({"": document})

    fetched = await delivered(client(api, BY_QUERY).fetch(REQUEST))

    assert msgspec.json.decode(fetched.body) == document


async def test_a_query_that_announces_more_pages_without_a_cursor_is_an_invalid_order() -> None:
    page = {"data": {"items": {"nodes": [], "page": {"cursor": None, "more": True}}}}

    fault = await fault_of({"": page}, BY_QUERY)

    assert str(fault) == "part items: no cursor of the next page - at `$.data.items.page.cursor`"


async def test_a_probe_requests_the_order_once_before_anything_else() -> None:
    api = Api({"": {}, FIRST: {"payload": {"items": []}}})

    fetched = await delivered(client(api).fetch_once(REQUEST))

    assert fetched.body == b'{"parts":{"items":[]}}'
    assert (api.asked_once, api.asked) == ([""], ["", FIRST])


async def test_an_order_that_was_fetched_with_others_keeps_their_exchange() -> None:
    exchange = Exchange((REQUEST,), 0.0)

    class Bulk(Api):
        async def fetch(self, request: FetchRequest) -> Fetched | Failed:
            return msgspec.structs.replace(await super().fetch(request), exchange=exchange)

    fetched = await delivered(client(Bulk({"": {}, FIRST: {"payload": {"items": []}}})).fetch(REQUEST))

    assert fetched.exchange is exchange


@pytest.mark.parametrize("fault", [TransientFault("HTTP 500"), ThrottledFault("HTTP 429", 3.0)], ids=["500", "429"])
async def test_the_fault_of_a_page_is_the_fault_of_the_order(fault: Fault) -> None:
    assert await fault_of({FIRST: {"payload": {"items": [1], "token": "2"}}, f"{FIRST}?page%20token=2": fault}) is fault


async def test_a_fault_that_no_retry_can_cure_names_the_part() -> None:
    refused = PermanentFault(DeadReason.NOT_FOUND, "HTTP 404")

    fault = await fault_of({FIRST: refused})

    assert isinstance(fault, PermanentFault)
    assert (fault.reason, str(fault)) == (DeadReason.NOT_FOUND, "part items: HTTP 404")


def repeating(token: str) -> dict[str, Any]:
    return {
        FIRST: {"payload": {"items": [1], "token": token}},
        f"{FIRST}?page%20token={token}": {"payload": {"items": [], "token": token}},
    }


@pytest.mark.parametrize(
    ("answers", "error"),
    [
        (repeating("2"), "part items: its pages repeat, or are more than 1000"),
        ({FIRST: {"payload": {}}}, "part items: expected `array`, got `null` - at `$.payload.items`"),
        (
            {FIRST: {"payload": {"items": {"1": 2}}}},
            "part items: expected `array`, got `object` - at `$.payload.items`",
        ),
        ({FIRST: {"payload": "secret"}}, "part items: expected `object`, got `str` - at `$.payload`"),
        (
            {FIRST: {"payload": {"items": [], "token": ["secret"]}}},
            "part items: expected `str` or `int`, got `array` - at `$.payload.token`",
        ),
        (
            {FIRST: {"payload": {"items": ["x" * 10_000]}}},
            "part items: the order and its parts are larger than 10000 bytes",
        ),
        ({FIRST: b'{"payload": {"items": [1e99999999999999999999]}}'}, "a number out of range"),
        ({FIRST: b"<b>secret</b>"}, "JSON is malformed: invalid character (byte 0)"),
        ({"": [1], FIRST: {"payload": {"items": []}}}, "expected `object` - at `$`"),
    ],
)
async def test_what_is_no_page_is_an_invalid_order(answers: dict[str, Any], error: str) -> None:
    fault = await fault_of(answers)

    assert isinstance(fault, PermanentFault)
    assert (fault.reason, str(fault)) == (DeadReason.INVALID_ORDER, error)


async def test_a_page_that_is_nested_too_deeply_is_an_invalid_order() -> None:
    depth = 200_000  # Python 3.11 decodes a thousand levels, and 3.14 as many as the stack has room for
    page = b'{"payload": {"items": ' + b"[" * depth + b"]" * depth + b"}}"

    fault = await fault_of({FIRST: page}, limit=1_000_000)

    assert isinstance(fault, PermanentFault)
    assert (fault.reason, str(fault)) == (DeadReason.INVALID_ORDER, "nested too deeply")


async def test_a_truncated_page_is_tried_again() -> None:
    fault = await fault_of({FIRST: b'{"payload": {"items": [1]}'})

    assert isinstance(fault, TransientFault)


async def test_pages_end_at_some_time_even_if_each_leads_to_another() -> None:
    class Endless(Api):
        async def fetch_page(self, request: FetchRequest, page: PageRequest) -> Fetched | Failed:
            self.asked.append(page.target)
            return response(request, b'{"payload": {"items": [], "token": %d}}' % len(self.asked), ASKED_AT)

    api = Endless({})
    with pytest.raises(PermanentFault, match="more than 1000"):
        await delivered(client(api, limit=1_000_000).fetch(REQUEST))

    assert len(api.asked) == 1_001


def test_an_order_that_is_truncated_stays_so_when_it_is_joined() -> None:
    whole = b'{"a": {"b": {"c": 1}}}'

    for end in range(2, len(whole)):
        body = whole[:end]
        with pytest.raises((InvalidDocument, msgspec.DecodeError)):
            msgspec.json.decode(join(body, {"items": [1]}))


@pytest.mark.parametrize(
    ("part", "error"),
    [
        (PartDeclaration(url="https://other.example/{order_id}", items="a"), "needs a path on the server of the order"),
        (PartDeclaration(url="//other.example/{order_id}", items="a"), "needs a path on the server of the order"),
        (PartDeclaration(url="/orders/items", items="a"), "needs a path on the server of the order"),
        (PartDeclaration(url="/o/{order_id}", items="a[]"), "a path with [] leads to a list of values"),
        (PartDeclaration(url="/o/{order_id}", items="a", next_parameter="n"), "`next_parameter` needs `next`"),
        (PartDeclaration(url="/o/{order_id}", items="a", page_parameter="n"), "`page_parameter` and `page_size` need"),
        (
            PartDeclaration(url="/o/{order_id}", items="a", page_size=5),
            "`page_parameter` and `page_size` need each other",
        ),
        (
            PartDeclaration(url="/o/{order_id}", items="a", next="n", page_parameter="n", page_size=5),
            "contains both `next` and `page_size`",
        ),
        (PartDeclaration(url="/o/{order_id}", items="a", in_order=True), "`in_order` needs `body`"),
        (PartDeclaration(url="/o/{order_id}", items="a", more="m"), "`more` needs `body`"),
        (msgspec.structs.replace(BY_QUERY, url="/o"), "`url` has no effect with `body`"),
        (msgspec.structs.replace(BY_QUERY, next=None), "needs the key `next`"),
        (msgspec.structs.replace(BY_QUERY, body={"id": "{order_id}"}), "needs {cursor}"),
        (msgspec.structs.replace(BY_QUERY, body={"after": "{cursor}"}), "needs {order_id}"),
    ],
)
def test_a_part_that_cannot_be_used_is_refused(part: PartDeclaration, error: str) -> None:
    with pytest.raises(MappingError) as refusal:
        part_of("items", part)

    assert refusal.value.problem.startswith(error)
