"""The trace context of an order, sent to the external API with each transport."""

import asyncio
import re
from collections.abc import Sequence

import pytest
from fakes.upstream import delivered
from raw_http import Connect, answering, http, secret

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.fetch.exchange import FetchRequest
from ingest.mapping.compiled.declaration import PartDeclaration
from ingest.mapping.parts import PartPages, join
from ingest.upstream.access.endpoint import Access
from ingest.upstream.bulk.bulk import BulkOptions, BulkUpstream
from ingest.upstream.parts import PartsClient

TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
OTHER_TRACE = TRACE.replace("-01", "-00")
LIST = b'[{"id":"1"},{"id":"2"}]'


def request_of(order_id: str, traceparent: str | None) -> FetchRequest:
    fields = {} if traceparent is None else {b"traceparent": traceparent.encode()}
    return Delivery(EntryRef("stream", "1-0"), order_id, 1.0, 1, 1, None, fields).request(order_id)


def sent(heads: Sequence[bytes]) -> list[list[str]]:
    """The values of the header in each request."""
    return [re.findall(r"(?im)^traceparent: (.*?)\r$", head.decode()) for head in heads]


@pytest.mark.parametrize(
    ("given", "expected"),
    [(TRACE, [TRACE]), (None, []), (f"{TRACE}\r\nX-Forged: 1", []), ("Zoë", [])],
    ids=["valid", "none", "with a line break", "not ASCII"],
)
async def test_the_trace_context_of_an_entry_is_sent_if_it_is_valid(
    connect: Connect, given: str | None, expected: list[str]
) -> None:
    async with answering(http(b"{}", "Content-Length: 2")) as (template, heads), connect(template) as client:
        await delivered(client.fetch(request_of("1", given)))

    assert sent(heads) == [expected]
    assert b"forged" not in heads[0].lower()


async def test_each_request_has_the_context_of_its_order_and_no_other(connect: Connect) -> None:
    access = Access(secrets={"headers": secret("headers", "X-Shop: 1")})
    async with (
        answering(http(b"{}", "Content-Length: 2"), then_close=False) as (template, heads),
        connect(template, access=access) as client,
    ):
        for given in (TRACE, None, OTHER_TRACE):
            await delivered(client.fetch(request_of("1", given)))

    assert sent(heads) == [[TRACE], [], [OTHER_TRACE]]
    assert all(b"X-Shop: 1\r\n" in head for head in heads)


async def test_the_context_of_an_order_takes_the_place_of_a_configured_one(connect: Connect) -> None:
    access = Access(secrets={"headers": secret("headers", f"Traceparent: {OTHER_TRACE}")})
    async with (
        answering(http(b"{}", "Content-Length: 2")) as (template, heads),
        connect(template, access=access) as client,
    ):
        await delivered(client.fetch(request_of("1", TRACE)))

    assert sent(heads) == [[TRACE]]


async def test_the_pages_of_an_order_are_requested_with_its_context(connect: Connect) -> None:
    pages = PartPages("items", PartDeclaration(url="/orders/{order_id}/items", items="items", next="next"))
    async with (
        answering(http(b'{"items":[]}', "Content-Length: 12")) as (template, heads),
        connect(template) as client,
    ):
        await PartsClient(client, client.fetch_page, [pages], join, 1_000).fetch(request_of("1", TRACE))

    assert sent(heads) == [[TRACE], [TRACE]]


@pytest.mark.parametrize(
    ("second", "expected"), [(TRACE, [TRACE]), (OTHER_TRACE, []), (None, [])], ids=["the same", "another", "none"]
)
async def test_a_request_for_several_orders_has_a_context_only_if_they_share_it(
    connect: Connect, second: str | None, expected: list[str]
) -> None:
    options = BulkOptions(size=2, requests=1, url_length=40, body=1_000)
    async with (
        answering(http(LIST, f"Content-Length: {len(LIST)}")) as (template, heads),
        connect(template) as client,
        BulkUpstream(client, options) as bulk,
    ):
        await asyncio.gather(
            delivered(bulk.fetch(request_of("1", TRACE))), delivered(bulk.fetch(request_of("2", second)))
        )

    assert sent(heads) == [expected]
