"""The client of the HTTP API repeats requests, checks responses, and sends its key only to the API."""

import asyncio
import gzip
import json
import ssl
import time
import traceback
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import trustme
from http_api import running_api
from redis.asyncio import Redis
from scripted_http import ScriptedServer, http, scripted_server

from ingest import (
    Accepted,
    ApiError,
    ApiUnavailable,
    BacklogFull,
    Client,
    Forbidden,
    IdempotencyKeyReused,
    Invalid,
    InvalidIdempotencyKey,
    InvalidOrderId,
    NotFound,
    Order,
    OrderLine,
    RateLimited,
    SyncClient,
    Unauthorized,
    UnexpectedResponse,
)
from ingest.api.admission.access import KeyAccess
from ingest.api.admission.rate_limit import SharedBuckets
from ingest.domain.api_key import ApiKey, Denial, RateLimit, Scope, digest_of, make_key
from ingest.domain.orders.order_row import OrderRow
from ingest.queue.layout.keys import Keys
from ingest.store.orders.order_store import OrderStore
from ingest.telemetry.shared_metrics import Counter

KEY = "ok_S3cr3tS3cr3tS3cr3tS3cr3t"
ACCEPTED = http(202, b'{"accepted":1,"duplicates":0}')

PLACED_AT = datetime(2026, 1, 2, tzinfo=UTC)


def problem(status: int, code: str, **members: Any) -> bytes:
    body = json.dumps({"title": "x", "status": status, "code": code, "detail": "what is wrong", **members}).encode()
    return http(status, body, "application/problem+json")


@pytest.fixture
async def server() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as running:
        yield running


def connected(server: ScriptedServer, **options: Any) -> AbstractAsyncContextManager[Client]:
    return Client.connect(server.url, **{"key": KEY, "timeout": 5, "deadline": 20, **options})


# -- against the real API ---------------------------------------------------------------------------------------------


async def queued(redis_url: str, queue: str, *, express: bool = False) -> list[str]:
    keys = Keys.of(queue)
    async with Redis.from_url(redis_url) as redis:
        entries = await redis.xrange(keys.express if express else keys.stream)
    return [fields[b"order_id"].decode() for _, fields in entries]


async def test_orders_are_announced(redis_url: str, dsn: str, queue_name: str) -> None:
    many = [f"B-{number}" for number in range(10_001)]

    async with running_api(redis_url, dsn, queue_name) as api, Client.connect(api.url) as client:
        assert await client.announce("A-1") == Accepted(1, 0)
        assert await client.announce(["A-2", "A-3"], origin="shop", express=True) == Accepted(2, 0)
        assert await client.announce(many) == Accepted(10_001, 0)
        with pytest.raises(InvalidOrderId):
            await client.announce(["A-4", "no order ID "])

    assert await queued(redis_url, queue_name) == ["A-1", *many]
    assert await queued(redis_url, queue_name, express=True) == ["A-2", "A-3"]


async def test_a_stream_and_whole_orders_are_announced_once(redis_url: str, dsn: str, queue_name: str) -> None:
    names = [f"A-{number}" for number in range(1_200)]

    async with running_api(redis_url, dsn, queue_name) as api, Client.connect(api.url) as client:
        for _ in range(2):
            assert await client.announce_stream(names, idempotency_key="k", batch=700) == Accepted(1_200, 0)
        with pytest.raises(IdempotencyKeyReused):
            await client.announce_stream(names[:600], idempotency_key="k")
        order = {"status": "placed", "placed_at": "2026-01-02T03:04:05Z", "currency": "EUR", "lines": []}
        assert await client.put("B-1", {"id": "B-1", **order}) == Accepted(1, 0)
        with pytest.raises(Invalid):
            await client.put("B-1", {"id": "B-2", **order})

    assert await queued(redis_url, queue_name) == [*names, "B-1"]


async def test_a_stream_that_does_not_fit_says_how_much_of_it_is_queued(
    redis_url: str, dsn: str, queue_name: str
) -> None:
    async with (
        running_api(redis_url, dsn, queue_name, backlog_limit=700) as api,
        Client.connect(api.url, deadline=0.5) as client,
    ):
        with pytest.raises(BacklogFull) as full:
            await client.announce_stream((f"A-{number}" for number in range(1_000)), batch=400)

    assert isinstance(full.value, ApiError)
    assert (full.value.code, full.value.retry_after >= 1) == ("backlog_full", True)
    assert full.value.accepted == len(await queued(redis_url, queue_name))


async def test_orders_are_found_listed_and_erased(redis_url: str, dsn: str, queue_name: str) -> None:
    orders = [stored_order(f"A-{number}") for number in range(5)]
    async with OrderStore.open(dsn) as store:
        await store.upsert([OrderRow.of(order, PLACED_AT, 1, PLACED_AT.timestamp()) for order in orders])

    async with running_api(redis_url, dsn, queue_name) as api, Client.connect(api.url) as client:
        await client.announce("B-1", express=True)
        stored, waiting = await client.get("A-1"), await client.get("B-1")
        listed = [entry["order"]["id"] async for entry in client.orders(limit=2, status="placed")]
        none = [entry async for entry in client.orders(placed_from=datetime(2030, 1, 1, tzinfo=UTC))]
        await client.erase("A-1")
        await client.erase("A-1")
        erased, state = await client.get("A-1"), await client.queue()
        with pytest.raises(NotFound):
            await client.get("C-1")
        with pytest.raises(Invalid):
            await anext(client.orders(colour="red"))

    assert (stored.state, stored.order) == ("stored", orders[1])
    assert (waiting.state, waiting.order) == ("queued", None)
    assert listed == [f"A-{number}" for number in range(5)]
    assert none == []
    assert (erased.state, erased.order) == ("erased", None)
    assert erased.erased_at is not None
    assert state["depth"] == 1


def stored_order(order_id: str) -> Order:
    line = OrderLine("85123A", 6, Decimal("2.55"), "HOLDER")
    return Order(order_id, "placed", "GBP", PLACED_AT, (line,), customer_id="17850", attributes={"gift": True})


async def test_hundreds_of_tasks_share_a_client(redis_url: str, dsn: str, queue_name: str) -> None:
    names = [f"A-{number}" for number in range(400)]

    async with running_api(redis_url, dsn, queue_name) as api, Client.connect(api.url) as client:
        assert await asyncio.gather(*map(client.announce, names)) == [Accepted(1, 0)] * 400

    assert sorted(await queued(redis_url, queue_name)) == sorted(names)


async def test_while_the_queue_is_unavailable_so_is_the_api(dsn: str, queue_name: str) -> None:
    async with (
        running_api("redis://127.0.0.1:1/0", dsn, queue_name) as api,
        Client.connect(api.url, deadline=0.5) as client,
    ):
        with pytest.raises(ApiUnavailable) as unavailable:
            await client.announce("A-1")

    assert (unavailable.value.status, unavailable.value.code) == (503, "queue_unavailable")
    assert unavailable.value.request_id


async def test_the_key_is_presented_and_what_it_may_not_do_is_named(redis_url: str, dsn: str, queue_name: str) -> None:
    cells = memoryview(bytearray(8 * len(Denial))).cast("d")
    denied = {reason.value: Counter(cells, at) for at, reason in enumerate(Denial)}
    keys = {name: make_key(name.ljust(16).encode()) for name in ("reader", "limited", "nobody")}
    known = [
        ApiKey("reader", digest_of(keys["reader"]), frozenset({Scope.READ})),
        ApiKey("limited", digest_of(keys["limited"]), frozenset({Scope.ENQUEUE}), RateLimit(0.01, 1)),
    ]
    access = KeyAccess(known, SharedBuckets(), denied, lambda: 0.0)

    async with running_api(redis_url, dsn, queue_name, access) as api:

        async def failure_of(key: str | None) -> ApiError:
            async with Client.connect(api.url, key=key) as client:
                with pytest.raises(ApiError) as failed:
                    await client.announce_stream(["A-1", "A-2"], batch=1)
            return failed.value

        assert isinstance(await failure_of(None), Unauthorized)
        assert isinstance(await failure_of(keys["nobody"]), Unauthorized)
        forbidden = await failure_of(keys["reader"])
        limited = await failure_of(keys["limited"])

    assert isinstance(forbidden, Forbidden)
    assert forbidden.members == {"scope": "enqueue"}
    assert isinstance(limited, RateLimited)
    assert (limited.retry_after, limited.accepted) == (100, 1)
    assert await queued(redis_url, queue_name) == ["A-1"]


# -- repeated requests -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        b"",
        http(503),
        http(502, b"<html>", "text/html"),
        problem(429, "queue_full"),
        problem(409, "request_in_progress"),
    ],
    ids=["lost", "503", "proxy", "full", "in progress"],
)
async def test_a_call_that_may_pass_is_sent_again_under_one_idempotency_key(
    server: ScriptedServer, failure: bytes
) -> None:
    server.answer(failure, failure, ACCEPTED)

    async with connected(server) as client:
        assert await client.announce("A-1") == Accepted(1, 0)

    assert len(server.received) == 3
    assert len({request.headers["idempotency-key"] for request in server.received}) == 1
    assert len({request.body for request in server.received}) == 1


async def test_calls_have_keys_of_their_own_and_take_the_callers(server: ScriptedServer) -> None:
    server.answer(ACCEPTED)

    async with connected(server) as client:
        await client.announce("A-1")
        await client.announce("A-1")
        await client.announce("A-1", idempotency_key='say "no"')
        for unusable in ("", "é", "a\nb", "x" * 181):
            with pytest.raises(InvalidIdempotencyKey):
                await client.announce("A-1", idempotency_key=unusable)

    first, second, third = (request.headers["idempotency-key"] for request in server.received)
    assert first != second
    assert third == '"say \\"no\\""'


async def test_it_waits_as_long_as_the_api_says(server: ScriptedServer) -> None:
    server.answer(http(429, b"", retry_after="1"), ACCEPTED)
    started = time.monotonic()

    async with connected(server) as client:
        await client.announce("A-1")

    assert time.monotonic() - started >= 1


async def test_it_does_not_wait_past_the_deadline(server: ScriptedServer) -> None:
    server.answer(http(429, b"", retry_after="3600"))

    async with connected(server) as client:
        with pytest.raises(RateLimited) as limited:
            await client.announce("A-1")

    assert limited.value.retry_after == 3600
    assert len(server.received) == 1


async def test_an_api_that_does_not_answer_is_unavailable_when_the_deadline_is_over(server: ScriptedServer) -> None:
    server.answer(b"HTTP/1.1 202 Acc")
    server.silent = True

    async with connected(server, timeout=0.1, deadline=0.5) as client:
        with pytest.raises(ApiUnavailable, match="no response within"):
            await client.announce("A-1")

    assert len(server.received) > 1


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (problem(400, "invalid_json"), Invalid),
        (problem(401, "invalid_key"), Unauthorized),
        (problem(403, "missing_scope"), Forbidden),
        (problem(404, "no_such_order"), NotFound),
        (problem(413, "body_too_large"), Invalid),
        (problem(422, "invalid_order_id", index=3), Invalid),
        (problem(422, "idempotency_key_reused"), IdempotencyKeyReused),
        (problem(404, "no_such_path"), UnexpectedResponse),
        (http(404, b"<html>", "text/html"), UnexpectedResponse),
        (http(422, b"{}", "application/json"), UnexpectedResponse),
    ],
)
async def test_what_cannot_pass_is_raised_at_once(server: ScriptedServer, answer: bytes, kind: type[Exception]) -> None:
    server.answer(answer)

    async with connected(server) as client:
        with pytest.raises(kind) as failed:
            await client.announce("A-1")

    assert len(server.received) == 1
    assert isinstance(failed.value, ApiError)
    assert "index" not in failed.value.members or failed.value.members["index"] == 3


# -- streams ----------------------------------------------------------------------------------------------------------


def sums(request: Any) -> bytes:
    return http(202, b'{"accepted":%d,"duplicates":0}' % request.body.count(b"\n"))


async def test_orders_that_are_listed_are_announced_as_they_are_read(server: ScriptedServer) -> None:
    server.answer(http(200, b'{"orders":[{"order":{"id":"A-1"}}],"next_cursor":null}'), ACCEPTED)

    def announce_all() -> Accepted:
        with SyncClient(server.url, key=KEY) as client:
            return client.announce(entry["order"]["id"] for entry in client.orders())

    async with asyncio.timeout(10):
        assert await asyncio.to_thread(announce_all) == Accepted(1, 0)

    assert json.loads(server.received[1].body) == {"order_ids": ["A-1"]}


async def test_a_ca_file_that_is_missing_for_the_first_call_is_read_for_the_next(
    server: ScriptedServer, tmp_path: Path
) -> None:
    authorities = tmp_path / "ca"
    trustme.CA().cert_pem.write_to_path(str(authorities))
    server.answer(ACCEPTED)

    with SyncClient(server.url, ca_file=str(authorities)) as client:
        authorities.rename(tmp_path / "rotated")
        with pytest.raises(ValueError, match="cannot be read"):
            await asyncio.to_thread(client.announce, "A-1")
        (tmp_path / "rotated").rename(authorities)
        accepted = await asyncio.to_thread(client.announce, "A-1")

    assert accepted == Accepted(1, 0)


async def test_a_stream_is_sent_in_parts_while_it_is_read(server: ScriptedServer) -> None:
    server.answer(sums)
    sent_when_read = []

    async def numbers() -> AsyncIterator[str]:
        for number in range(25):
            sent_when_read.append(len(server.received))
            yield f"A-{number}"

    async with connected(server) as client:
        assert await client.announce_stream(numbers(), idempotency_key="k", batch=10) == Accepted(25, 0)

    assert [request.headers["idempotency-key"] for request in server.received] == ['"k"', '"k/1"', '"k/2"']
    assert {request.headers["content-type"] for request in server.received} == {"application/x-ndjson"}
    lines = b"".join(request.body for request in server.received).splitlines()
    assert [json.loads(line) for line in lines] == [f"A-{number}" for number in range(25)]
    assert sent_when_read == [0] * 10 + [1] * 10 + [2] * 5


async def test_a_stream_that_fails_says_how_much_was_accepted(server: ScriptedServer) -> None:
    server.answer(sums, http(503), sums, problem(422, "invalid_body"))

    async with connected(server) as client:
        with pytest.raises(Invalid) as failed:
            await client.announce_stream((f"A-{number}" for number in range(30)), batch=10)

    assert failed.value.accepted == 20
    assert server.received[1].body == server.received[2].body, "a part is sent again whole"


async def test_a_thread_streams_too(server: ScriptedServer) -> None:
    server.answer(sums)

    def numbers() -> Iterator[str]:
        yield from (f"A-{number}" for number in range(5))

    with SyncClient(server.url, key=KEY) as client:
        assert await asyncio.to_thread(client.announce_stream, numbers(), batch=2) == Accepted(5, 0)
        with pytest.raises(ValueError, match="10,000"):
            client.announce_stream([], batch=10_001)

    assert len(server.received) == 3


# -- single orders, and the list --------------------------------------------------------------------------------------


FOUND = json.dumps(
    {
        "order_id": "A-1",
        "order": {
            "id": "A-1",
            "status": "placed",
            "placed_at": "2026-01-02T03:04:05Z",
            "updated_at": None,
            "currency": "EUR",
            "customer_id": None,
            "country": None,
            "attributes": {},
            "total": "7.50",
            "lines": [{"sku": "S", "description": None, "quantity": 3, "unit_price": "2.50"}],
        },
        "row": {"attempts": 1},
        "erased_at": None,
        "ingestion": {"state": "stored", "searched": True, "entries": []},
    }
).encode()


async def test_an_order_is_pushed_read_and_erased(server: ScriptedServer) -> None:
    erased = http(200, b'{"order_id":"A-1","removed":{"rows":1,"retries":0,"dead_letters":0}}')
    server.answer(ACCEPTED, http(200, FOUND), erased, http(200, b'{"depth":3}'))

    async with connected(server) as client:
        assert await client.put("A-1", {"id": "A-1"}) == Accepted(1, 0)
        found = await client.get("A-1")
        await client.erase("A-1")
        assert await client.queue() == {"depth": 3}
        assert (found.order_id, found.state, found.erased_at) == ("A-1", "stored", None)
        assert found.order is not None
        assert found.order.lines[0].unit_price == Decimal("2.50")
        assert found.response["ingestion"]["searched"]
        for unusable in ("..", "a\n", " a", "a\r\nX-Header: b", ""):
            with pytest.raises(InvalidOrderId):
                await client.get(unusable)

    assert [request.line.rpartition(" ")[0] for request in server.received] == [
        "PUT /v1/orders/A-1",
        "GET /v1/orders/A-1",
        "DELETE /v1/orders/A-1",
        "GET /v1/queue",
    ]
    assert json.loads(server.received[0].body) == {"id": "A-1"}


async def test_the_list_is_read_page_by_page(server: ScriptedServer) -> None:
    pages = (
        http(200, b'{"orders":[{"id":"A-1"},{"id":"A-2"}],"next_cursor":"c&1"}'),
        http(200, b'{"orders":[{"id":"A-3"}],"next_cursor":null}'),
    )
    since = datetime(2026, 1, 2, tzinfo=UTC)

    server.answer(*pages)
    async with connected(server) as client:
        found = [order["id"] async for order in client.orders(limit=2, status="a b", placed_from=since)]
        with pytest.raises(ValueError, match="time zone"):
            await anext(client.orders(placed_from=datetime(2026, 1, 2)))  # noqa: DTZ001  that is the point
    server.answer(*pages)
    with SyncClient(server.url, key=KEY) as waiting:
        assert await asyncio.to_thread(lambda: [order["id"] for order in waiting.orders()]) == found

    assert found == ["A-1", "A-2", "A-3"]
    first, second, *_ = (request.line.split(" ")[1] for request in server.received)
    assert first == "/v1/orders?limit=2&status=a+b&placed_from=2026-01-02T00%3A00%3A00%2B00%3A00"
    assert second == f"{first}&cursor=c%261"


@pytest.mark.parametrize(
    "page",
    [
        b'{"orders":[],"next_cursor":"c"}',
        b'{"orders":{},"next_cursor":null}',
        b'{"orders":[1],"next_cursor":null}',
        b'{"orders":[],"next_cursor":7}',
    ],
)
async def test_a_list_that_does_not_go_on_ends(server: ScriptedServer, page: bytes) -> None:
    server.answer(http(200, page))

    async with connected(server) as client:
        with pytest.raises(UnexpectedResponse):
            [order async for order in client.orders()]

    assert len(server.received) <= 2


# -- hostile servers --------------------------------------------------------------------------------------------------

HOSTILE = {
    "noise": b"\x00\xff" * 500,
    "no HTTP": b"SSH-2.0-OpenSSH_9.9\r\n",
    "a page": http(200, b"<html>sign in</html>", "text/html"),
    "an accepted page": http(202, b"<html>", "text/html"),
    "a list": http(202, b"[1]"),
    "no JSON": http(202, b'{"accepted":'),
    "no UTF-8": http(202, b'{"accepted":"\xff"}'),
    "wrong types": http(202, b'{"accepted":"all"}'),
    "deep": http(202, b'{"accepted":' + b"[" * 100_000),
    "truncated": http(202, b'{"accepted":1}', content_length="500"),
    "huge": http(202, b"{}", content_length=str(1 << 40)),
    "compressed": http(202, gzip.compress(b" " * 1_000_000), content_encoding="gzip"),
    "long header": b"HTTP/1.1 202 X\r\nx: " + b"a" * 100_000 + b"\r\n\r\n",
    "unknown status": http(299, b"{}"),
    "odd problem": problem(422, "x", detail=["no", "text"]),
    "deep problem": http(422, b'{"code":' + b"[" * 100_000, "application/problem+json"),
    "long problem": problem(422, "c" * 100_000, detail="\x1b[2J" + "d" * 100_000),
    "its key": lambda request: problem(422, "x", detail=request.headers["authorization"]),
    "redirect": http(307, b"", location="http://127.0.0.1:1/v1/orders"),
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
async def test_whatever_answers_the_call_fails_with_one_clear_error_without_the_key(
    server: ScriptedServer, answer: bytes
) -> None:
    server.answer(answer)

    async with connected(server, deadline=0.3) as client:
        with pytest.raises(ApiError) as failed:
            await client.announce("A-1")
        assert KEY not in repr(client)

    error = failed.value
    shown = "".join(traceback.TracebackException.from_exception(error, capture_locals=True).format())
    assert KEY not in shown.replace(repr(server.received), "").replace(f"KEY = {KEY!r}", "")
    assert str(error).isprintable()
    assert len(str(error)) < 800


@pytest.mark.parametrize("found", [b"{}", b'{"order_id":1,"ingestion":{}}', FOUND.replace(b'"2.50"', b'"much"')])
async def test_an_answer_that_tells_of_no_order_is_not_believed(server: ScriptedServer, found: bytes) -> None:
    server.answer(http(200, found))

    async with connected(server) as client:
        with pytest.raises(UnexpectedResponse):
            await client.get("A-1")


@pytest.mark.parametrize(
    "answer", [http(200, b"<html>sign in</html>", "text/html"), http(204), http(200, b"{}"), http(200, FOUND)]
)
async def test_an_order_is_erased_only_where_the_api_says_so(server: ScriptedServer, answer: bytes) -> None:
    server.answer(answer)

    async with connected(server) as client:
        with pytest.raises(UnexpectedResponse):
            await client.erase("A-2")


async def test_the_key_does_not_follow_a_redirect(server: ScriptedServer) -> None:
    async with scripted_server() as elsewhere:
        elsewhere.answer(ACCEPTED)
        server.answer(http(307, b"", location=f"{elsewhere.url}/v1/orders"))
        async with connected(server) as client:
            with pytest.raises(UnexpectedResponse, match="redirect"):
                await client.announce("A-1")

    assert elsewhere.received == []


# -- where it connects ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "url",
    ["orders.example", "ftp://orders.example", "https://", "https://user:pw@orders.example", "https://h/?key=1",
     "http://orders.example", "http://10.0.0.1", "http://localhost.evil.example", "https://h:x", "https://h/a\r\nb"],
)  # fmt: skip
def test_an_address_that_cannot_be_meant_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match=r"URL|TLS") as refused:
        SyncClient(url, key=KEY)

    assert KEY not in str(refused.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:8080", "http://[::1]:8080", "http://localhost", "https://h/base/"])
def test_other_addresses_are_taken(url: str) -> None:
    assert KEY not in repr(SyncClient(url, key=KEY))


@pytest.mark.parametrize("key", ["", "two words", "line\nbreak", "é"])
def test_a_key_that_cannot_go_into_a_header_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="API key") as refused:
        SyncClient("https://orders.example", key=key)

    assert not key or key not in str(refused.value)


async def test_only_a_certificate_of_a_trusted_authority_is_accepted(tmp_path: Path) -> None:
    ours, other = trustme.CA(), trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ours.issue_cert("127.0.0.1").configure_cert(context)
    for name, authority in (("ours", ours), ("other", other)):
        authority.cert_pem.write_to_path(str(tmp_path / name))
    (tmp_path / "none").write_text("no certificate")

    async with scripted_server(context) as server:
        server.answer(ACCEPTED)
        async with connected(server, ca_file=str(tmp_path / "ours")) as client:
            assert await client.announce("A-1") == Accepted(1, 0)
        for options in ({"ca_file": str(tmp_path / "other")}, {}):
            async with connected(server, **options) as client:
                with pytest.raises(UnexpectedResponse, match="certificate"):
                    await client.announce("A-1")
    for unusable in ("none", "missing"):
        with pytest.raises(ValueError, match="CA file"):
            SyncClient(server.url, ca_file=str(tmp_path / unusable))

    assert len(server.received) == 1
