"""The port `Upstream` on the list endpoint of a real API over HTTP, with each transport: what single requests give, bulk ones do."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace

import msgspec
import pytest
from fakes.upstream import delivered
from raw_http import LIMITS, QUICK, TOKEN, Connect, answering, counted, http

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import CredentialFault, Fault, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed, Fetched
from ingest.lab.upstream import SimulatedApi
from ingest.lab.upstream.samples import sample_orders
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.bulk.bulk import BulkOptions, BulkUpstream
from ingest.upstream.http.transport import UpstreamLimits

DOCUMENTS = dict(list(sample_orders().items())[:120])
IDS = list(DOCUMENTS)

Bulk = Callable[..., AbstractAsyncContextManager[BulkUpstream]]


@pytest.fixture
def bulk(connect: Connect) -> Bulk:
    @asynccontextmanager
    async def opened(
        template: str, limits: UpstreamLimits = LIMITS, token: str | None = None, size: int = 50
    ) -> AsyncIterator[BulkUpstream]:
        url = template.replace("{order_ids}", "{order_id}")
        options = BulkOptions(size=size, requests=4, url_length=len(url), body=limits.body)
        async with (
            connect(url, replace(limits, body=size * limits.body), token) as client,
            BulkUpstream(client, options) as upstream,
        ):
            yield upstream

    return opened


async def fetched(upstream: BulkUpstream, *order_ids: str) -> list[bytes]:
    return [
        each.body
        for each in await asyncio.gather(*(delivered(upstream.fetch(FetchRequest(name))) for name in order_ids))
    ]


async def failures(upstream: BulkUpstream, *order_ids: str) -> list[Failed]:
    ended = await asyncio.gather(*(upstream.fetch(FetchRequest(order_id)) for order_id in order_ids))
    assert all(isinstance(each, Failed) for each in ended), ended
    return [each for each in ended if isinstance(each, Failed)]


@pytest.mark.parametrize("shape", ["object", "array"])
async def test_orders_are_returned_byte_for_byte(api: SimulatedApi, bulk: Bulk, shape: str) -> None:
    api.behave(list_shape=shape)

    async with bulk(api.list_template) as upstream:
        bodies = await fetched(upstream, *IDS)

    assert bodies == list(DOCUMENTS.values())
    stats = api.stats()
    assert (stats.requests, stats.orders) == (3, len(IDS))


async def test_an_order_that_does_not_exist_is_missing_and_the_others_are_there(api: SimulatedApi, bulk: Bulk) -> None:
    api.delete_order(IDS[1])
    try:
        async with bulk(api.list_template) as upstream:
            one, two, three = await asyncio.gather(
                *(delivered(upstream.fetch(FetchRequest(order_id))) for order_id in IDS[:3]), return_exceptions=True
            )
    finally:
        api.put_order(IDS[1], DOCUMENTS[IDS[1]])

    assert isinstance(one, Fetched)
    assert isinstance(three, Fetched)
    assert isinstance(two, PermanentFault)
    assert two.reason is DeadReason.NOT_FOUND


@pytest.mark.parametrize(
    ("behaviour", "fault", "requests"),
    [
        ({"error_rate": 1, "error_status": 400}, PermanentFault, 1),
        ({"error_rate": 1, "error_status": 422}, PermanentFault, 1),
        ({"not_found_rate": 1}, PermanentFault, 1),
        ({"malformed_rate": 1}, PermanentFault, 1),
        ({"error_rate": 1, "error_status": 500}, TransientFault, 3),
        ({"down": "503"}, TransientFault, 3),
        ({"reset_rate": 1}, TransientFault, 3),
        ({"truncate_rate": 1}, TransientFault, 3),
        ({"token": "other"}, CredentialFault, 1),
        ({"rate_limit": 0.001, "rate_burst": 1}, ThrottledFault, 1),
        ({"unavailable_rate": 1}, ThrottledFault, 1),
    ],
)
async def test_a_request_that_fails_is_tried_as_a_single_one_and_fails_for_all_of_its_orders(
    api: SimulatedApi,
    bulk: Bulk,
    shared_metrics: SharedMetrics,
    behaviour: dict[str, object],
    fault: type[Fault],
    requests: int,
) -> None:
    api.behave(**behaviour)
    async with bulk(api.list_template, QUICK, TOKEN) as upstream:
        before = 0.0
        if "rate_limit" in behaviour:
            await fetched(upstream, IDS[0])
            before = 1.0
        ended = await failures(upstream, *IDS[:20])

    assert {type(each.fault) for each in ended} == {fault}
    assert all(each.is_shared for each in ended)
    assert len({each.exchange for each in ended}) == 1
    assert sum(counted(shared_metrics).values()) - before == requests


async def test_more_orders_than_the_api_permits_are_refused_as_a_whole(api: SimulatedApi, bulk: Bulk) -> None:
    api.behave(list_limit=20)

    async with bulk(api.list_template) as upstream:
        ended = await failures(upstream, *IDS[:21])

    assert {str(each.fault) for each in ended} == {"HTTP 422"}
    assert all(each.is_shared for each in ended)


async def test_the_limit_of_a_document_holds_for_each_and_for_the_answer_as_many_times(bulk: Bulk) -> None:
    small, large = b'{"id":"a"}', b'{"id":"b","x":"%s"}' % (b"x" * 1_000)
    limits = replace(LIMITS, body=1_000)
    body = b"[%s,%s]" % (small, large)
    async with (
        answering(http(body, f"Content-Length: {len(body)}")) as (template, _),
        bulk(template.replace("/{order_id}", "?ids={order_ids}"), limits, size=2) as upstream,
    ):
        fetched, failed = await asyncio.gather(*(upstream.fetch(FetchRequest(order_id)) for order_id in "ab"))
    assert isinstance(fetched, Fetched)
    assert isinstance(failed, Failed)
    assert isinstance(failed.fault, PermanentFault)
    assert not failed.is_shared

    body = msgspec.json.encode([{"id": "a", "x": "x" * 2_000}])
    async with (
        answering(http(body, f"Content-Length: {len(body)}")) as (template, _),
        bulk(template.replace("/{order_id}", "?ids={order_ids}"), limits, size=2) as upstream,
    ):
        too_large = await failures(upstream, "a", "b")
    assert {str(each.fault) for each in too_large} == {"the body is larger than 2000 bytes"}
    assert all(each.is_shared for each in too_large)


async def test_the_ids_are_percent_encoded_and_separated_by_commas(bulk: Bulk) -> None:
    async with (
        answering(http(b"[]", "Content-Length: 2")) as (template, asked),
        bulk(template.replace("/orders/{order_id}", "/o%2Fx?key=a%2Cb&ids={order_ids}&z=%20")) as upstream,
    ):
        await failures(upstream, "shop:1", "b-2", "c_3")

    assert asked[0].startswith(b"GET /o%2Fx?key=a%2Cb&ids=shop%3A1,b-2,c_3&z=%20 HTTP/1.1\r\n")
