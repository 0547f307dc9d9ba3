"""The client of the external API, over real HTTP. Every fault gets its name, and no response breaks the session."""

import asyncio
import gzip
import re
import socket
import traceback
import tracemalloc
from dataclasses import replace

import pytest
from fakes.upstream import delivered
from raw_http import DOCUMENT, IMPATIENT, ORDER, OTHER, QUICK, TOKEN, Connect, answering, counted, http
from support import eventually

from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.errors import NotSent, PermanentFault, ThrottledFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.lab.upstream import SimulatedApi
from ingest.telemetry.shared_metrics import SharedMetrics

# -- orders -------------------------------------------------------------------------------------------------------


async def test_an_order_is_returned_byte_for_byte(
    api: SimulatedApi, connect: Connect, shared_metrics: SharedMetrics
) -> None:
    async with connect(api.url_template) as client:
        body = (await delivered(client.fetch(FetchRequest(ORDER)))).body

    assert body == DOCUMENT
    assert counted(shared_metrics) == {"2xx": 1}


async def test_consecutive_requests_share_a_connection(api: SimulatedApi, connect: Connect) -> None:
    async with connect(api.url_template) as client:
        for _ in range(20):
            await delivered(client.fetch(FetchRequest(ORDER)))

        assert api.stats().requests == 20
        assert api.stats().open_connections == 1


async def test_all_requests_run_concurrently(api: SimulatedApi, connect: Connect) -> None:
    api.behave(hang_rate=1.0)

    async with connect(api.url_template) as client:
        requests = [asyncio.create_task(delivered(client.fetch(FetchRequest(ORDER)))) for _ in range(150)]
        await eventually(lambda: api.stats().concurrency == 150)
        for request in requests:
            request.cancel()
        await asyncio.gather(*requests, return_exceptions=True)


async def test_an_id_is_percent_encoded_into_the_path(connect: Connect) -> None:
    async with answering(http(b"{}", "Content-Length: 2")) as (template, asked), connect(template) as client:
        await delivered(client.fetch(FetchRequest("shop:1.a_b-c")))

    assert asked[0].startswith(b"GET /orders/shop%3A1.a_b-c HTTP/1.1\r\n")


async def test_an_id_may_be_in_a_query_which_is_otherwise_unchanged(connect: Connect) -> None:
    async with answering(http(b"{}", "Content-Length: 2")) as (template, asked):
        written = template.replace("/orders/{order_id}", "/o%2Fx?fields=a%2Cb&id={order_id}&z=%20")
        async with connect(written) as client:
            await delivered(client.fetch(FetchRequest("shop:1")))

    assert asked[0].startswith(b"GET /o%2Fx?fields=a%2Cb&id=shop%3A1&z=%20 HTTP/1.1\r\n")


# -- faults -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ({"not_found_rate": 1}, DeadReason.NOT_FOUND),
        ({"error_rate": 1, "error_status": 410}, DeadReason.NOT_FOUND),
        ({"error_rate": 1, "error_status": 400}, DeadReason.REJECTED),
        ({"error_rate": 1, "error_status": 422}, DeadReason.REJECTED),
        ({"oversize_rate": 1, "oversize_bytes": 5 * 1024 * 1024}, DeadReason.INVALID_ORDER),
    ],
)
async def test_the_orders_own_faults_are_permanent_and_not_tried_again(
    api: SimulatedApi, connect: Connect, behaviour: dict[str, object], reason: DeadReason
) -> None:
    api.behave(**behaviour)

    async with connect(api.url_template, QUICK) as client:
        with pytest.raises(PermanentFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert fault.value.reason is reason
    assert api.stats().requests == 1


@pytest.mark.parametrize(
    ("behaviour", "code"),
    [
        ({"error_rate": 1, "error_status": 500}, "5xx"),
        ({"error_rate": 1, "error_status": 503}, "5xx"),
        ({"error_rate": 1, "error_status": 408}, "4xx"),
        ({"down": "503"}, "5xx"),
        ({"down": "reset"}, "error"),
        ({"reset_rate": 1}, "error"),
        ({"truncate_rate": 1}, "error"),
    ],
)
async def test_transient_faults_are_tried_as_often_as_allowed(
    api: SimulatedApi, connect: Connect, shared_metrics: SharedMetrics, behaviour: dict[str, object], code: str
) -> None:
    api.behave(**behaviour)

    async with connect(api.url_template, QUICK) as client:
        with pytest.raises(TransientFault):
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert counted(shared_metrics) == {code: 3}


@pytest.mark.parametrize("fault", ["error_rate", "reset_rate", "truncate_rate", "hang_rate"])
async def test_a_fault_that_ends_within_the_immediate_tries_is_not_reported(
    api: SimulatedApi, connect: Connect, fault: str
) -> None:
    api.behave(fail_first=2, **{fault: 1})

    async with connect(api.url_template, replace(IMPATIENT, tries=3)) as client:
        body = (await delivered(client.fetch(FetchRequest(ORDER)))).body

    assert body == DOCUMENT
    assert api.stats().by_id == {ORDER: 3}


async def test_while_the_api_asks_to_wait_nothing_is_tried_again(api: SimulatedApi, connect: Connect) -> None:
    api.behave(error_rate=1.0)

    async with connect(api.url_template, QUICK, is_paused=lambda: True) as client:
        with pytest.raises(NotSent, match="asks to wait"):
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert api.stats().requests == 1


async def test_the_time_of_a_fetch_is_that_of_the_try_that_succeeded(api: SimulatedApi, connect: Connect) -> None:
    # Otherwise an order requested before an outage would count as older than an order requested, and changed, during it.
    api.behave(fail_first=2, error_rate=1)

    async with connect(api.url_template, replace(IMPATIENT, tries=3)) as client:
        fetched = await delivered(client.fetch(FetchRequest(ORDER)))

    stats = api.stats()
    assert stats.requests == 3
    assert stats.first_request is not None
    assert stats.first_request.unix < fetched.requested_at.timestamp()


@pytest.mark.parametrize(
    ("behaviour", "after"),
    [
        ({"rate_limit": 0.001, "rate_burst": 1, "retry_after": 7}, 7.0),
        ({"rate_limit": 0.001, "rate_burst": 1, "retry_after_format": "none"}, None),
        ({"unavailable_rate": 1, "retry_after": 3}, 3.0),
    ],
)
async def test_a_throttled_request_is_not_a_failure_and_not_tried_again(
    api: SimulatedApi, connect: Connect, behaviour: dict[str, object], after: float | None
) -> None:
    api.behave(**behaviour)

    async with connect(api.url_template, QUICK) as client:
        if "rate_limit" in behaviour:
            await delivered(client.fetch(FetchRequest(OTHER)))
        with pytest.raises(ThrottledFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert fault.value.after == after
    assert api.stats().by_id[ORDER] == 1


async def test_a_refused_connection_is_a_transient_fault_that_has_not_reached_the_api(
    connect: Connect, shared_metrics: SharedMetrics
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # bound, but not listening
        template = f"http://127.0.0.1:{bound.getsockname()[1]}/{{order_id}}"
        async with connect(template, QUICK) as client:
            with pytest.raises(TransientFault) as fault:
                await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached
    assert_readable(str(fault.value))
    assert counted(shared_metrics) == {"error": 3}


async def test_an_unknown_host_is_a_transient_fault_that_has_not_reached_the_api(connect: Connect) -> None:
    async with connect("http://no-such-host.invalid/{order_id}") as client:
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert not fault.value.reached
    assert_readable(str(fault.value))


@pytest.mark.parametrize("length", [0, 1, len(DOCUMENT) // 2, len(DOCUMENT) - 1])
async def test_a_truncated_document_without_content_length_is_a_transient_fault(
    connect: Connect, shared_metrics: SharedMetrics, length: int
) -> None:
    async with answering(http(DOCUMENT[:length])) as (template, _), connect(template, QUICK) as client:
        with pytest.raises(TransientFault, match="the document is truncated after") as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert fault.value.reached
    assert_readable(str(fault.value))
    assert counted(shared_metrics) == {"error": 3}


NONSENSE = [
    b"",
    b"\r\n",
    b"SSH-2.0-OpenSSH_9.9\r\n",
    b"HTTP/1.1 abc\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: ten\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nX: " + b"x" * 1_000_000 + b"\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd",
    b"HTTP/1.1 200 OK\r\nContent-Encoding: deflate\r\nContent-Length: 4\r\n\r\n\xff\xff\xff\xff",
    b"HTTP/1.1 302 Found\r\nLocation: ftp://elsewhere/\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: http://[\r\nContent-Length: 0\r\n\r\n",
    b"HTTP/1.1 302 Found\r\nLocation: //\r\nContent-Length: 0\r\n\r\n",
]


def assert_readable(text: str) -> None:
    """It is a sentence: no representation of an object, no name of a class, no end without a text."""
    assert re.fullmatch(r"[A-Za-z][A-Za-z0-9 ,.:;'/()-]{14,}", text), text
    assert not re.search(r"\wError\b|\bcurl \d+:|: *$|\bb'", text), text


@pytest.mark.parametrize("nonsense", NONSENSE, ids=lambda nonsense: repr(nonsense[:60]))
async def test_a_response_that_is_not_http_is_a_transient_fault(connect: Connect, nonsense: bytes) -> None:
    right = http(b"{}", "Content-Length: 2")

    async with answering(nonsense, to_other=right) as (template, _), connect(template) as client:
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

        assert_readable(str(fault.value))
        assert (await delivered(client.fetch(FetchRequest(OTHER)))).body == b"{}"


# -- the size of a body -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("length", [1_000, 1_001])
@pytest.mark.parametrize("announced", [True, False])
async def test_the_body_limit_applies_with_and_without_content_length(
    connect: Connect, *, length: int, announced: bool
) -> None:
    body = b"x" * length
    answer = http(body, f"Content-Length: {length}") if announced else http(body)

    async with answering(answer) as (template, _), connect(template, replace(QUICK, body=1_000)) as client:
        if length <= 1_000:
            assert (await delivered(client.fetch(FetchRequest(ORDER)))).body == body
        else:
            with pytest.raises(PermanentFault, match="larger than 1000 bytes") as fault:
                await delivered(client.fetch(FetchRequest(ORDER)))
            assert fault.value.reason is DeadReason.INVALID_ORDER


async def test_a_body_that_is_too_large_is_not_read(connect: Connect) -> None:
    # Announced and never sent: whoever wanted to read it would wait.
    answer = http(b"", "Content-Length: 999999999")

    async with answering(answer, then_close=False) as (template, _), connect(template) as client:
        with pytest.raises(PermanentFault):
            await delivered(client.fetch(FetchRequest(ORDER)))


async def test_a_gzip_bomb_is_refused_without_decompressing_it(connect: Connect) -> None:
    packed = gzip.compress(bytes(200 * 1024 * 1024), 1)
    answer = http(packed, "Content-Encoding: gzip", f"Content-Length: {len(packed)}")

    async with answering(answer) as (template, _), connect(template) as client:
        tracemalloc.start()
        try:
            with pytest.raises(PermanentFault, match="larger"):
                await delivered(client.fetch(FetchRequest(ORDER)))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert peak < 32 * 1024 * 1024


# -- redirects ----------------------------------------------------------------------------------------------------


async def test_a_redirect_is_followed_with_the_token(
    api: SimulatedApi, connect: Connect, shared_metrics: SharedMetrics
) -> None:
    api.behave(redirect_rate=1, fail_first=1, token=TOKEN)

    async with connect(api.url_template, token=TOKEN) as client:
        assert (await delivered(client.fetch(FetchRequest(ORDER)))).body == DOCUMENT

    assert api.stats().requests == 2
    assert counted(shared_metrics) == {"3xx": 1, "2xx": 1}


async def test_the_token_is_in_no_traceback(connect: Connect) -> None:
    async with answering(b"nonsense\r\n\r\n") as (template, _), connect(template, token=TOKEN) as client:
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert TOKEN not in "".join(traceback.format_exception(fault.value))


async def test_cookies_of_one_order_are_not_sent_with_another(connect: Connect) -> None:
    answer = http(b"{}", "Set-Cookie: seen=1", "Content-Length: 2")

    async with answering(answer) as (template, asked), connect(template) as client:
        await delivered(client.fetch(FetchRequest(ORDER)))
        await delivered(client.fetch(FetchRequest(OTHER)))

    assert b"seen" not in asked[1]
