"""The simulated external API over real sockets, on which all other tests and benchmarks rely."""

import asyncio
import contextlib
import email.utils
import gzip
import json
import signal
import statistics
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from random import Random

import aiohttp
import pytest

import ingest
from ingest.domain.errors import UserError
from ingest.lab.bucket import Bucket
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.lab.upstream.behaviour import SHARES
from ingest.lab.upstream.latency import Latency
from ingest.upstream.rate_limit_headers import remaining_of

DATA = Path(ingest.__file__).parent / "lab" / "data" / "orders.jsonl.gz"
LINES = gzip.decompress(DATA.read_bytes()).splitlines()
# All lines begin with it, and decoding them takes half a second of each test process.
DOCUMENTS = {line.split(b'"', 4)[3].decode(): line for line in LINES}
ORDER, OTHER, THIRD = list(DOCUMENTS)[:3]


@pytest.fixture
async def api() -> AsyncIterator[SimulatedApi]:
    async with SimulatedApi(seed=1) as api:
        yield api


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=30)) as session:
        yield session


def url(api: SimulatedApi, order_id: str = ORDER) -> str:
    return api.url_template.format(order_id=order_id)


async def fetch(http: aiohttp.ClientSession, api: SimulatedApi, order_id: str = ORDER) -> tuple[int, bytes]:
    async with http.get(url(api, order_id), allow_redirects=False) as response:
        return response.status, await response.read()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110  the condition is seen from outside, by its counts
            await asyncio.sleep(0.002)


@contextlib.asynccontextmanager
async def raw(api: SimulatedApi) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = api.base_url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def read_answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    lengths = [line for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")]
    return head, await reader.readexactly(int(lengths[0].split(b":")[1]))


def get(path: str, *headers: str, version: str = "1.1", method: str = "GET") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: x", *headers, "", ""]).encode()


# -- orders -----------------------------------------------------------------------------------------------------


async def test_every_bundled_order_is_served_byte_for_byte(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    async def fetched(order_ids: list[str]) -> list[bytes]:
        return [(await fetch(http, api, order_id))[1] for order_id in order_ids]

    ids = list(DOCUMENTS)
    parts = await asyncio.gather(*(fetched(ids[start::20]) for start in range(20)))

    served = {
        order_id: body for start in range(20) for order_id, body in zip(ids[start::20], parts[start], strict=True)
    }
    assert len(served) == 10_000
    assert served == DOCUMENTS


async def test_an_unknown_order_is_404_with_a_problem(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    async with http.get(url(api, "no-such-order")) as response:
        problem = await response.json(content_type="application/problem+json")

    assert response.status == 404
    assert problem["status"] == 404


async def test_a_percent_encoded_id_and_a_query_reach_the_same_order(api: SimulatedApi) -> None:
    encoded = "".join(f"%{ord(letter):02X}" for letter in ORDER)

    async with raw(api) as (reader, writer):
        writer.write(get(f"/orders/{encoded}?fields=all") + get(f"http://shop/orders/{ORDER}"))
        bodies = [(await read_answer(reader))[1] for _ in range(2)]

    assert bodies == [DOCUMENTS[ORDER]] * 2
    assert api.stats().by_id == {ORDER: 2}


async def test_any_well_formed_id_is_served_if_asked_for(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(any_id=True)

    status, body = await fetch(http, api, "made-up:1")
    again = await fetch(http, api, "made-up:1")
    malformed, _ = await fetch(http, api, "made-up%0A")

    order = json.loads(body)
    assert (status, order["id"]) == (200, "made-up:1")
    assert any(order["lines"] == json.loads(line)["lines"] for line in LINES)
    assert again == (status, body)
    assert malformed == 404
    assert await fetch(http, api) == (200, DOCUMENTS[ORDER])


async def test_a_bundled_order_can_be_given_a_version(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(updated_at="2011-05-01T12:00:00Z", any_id=True)

    _, bundled = await fetch(http, api)
    _, made_up = await fetch(http, api, "made-up")
    api.behave(updated_at=None)
    _, without = await fetch(http, api)

    expected = {**json.loads(DOCUMENTS[ORDER]), "updated_at": "2011-05-01T12:00:00Z"}
    assert json.loads(bundled) == expected
    assert json.loads(made_up)["updated_at"] == "2011-05-01T12:00:00Z"
    assert without == DOCUMENTS[ORDER]


async def test_the_document_of_an_order_can_be_replaced_and_removed(
    api: SimulatedApi, http: aiohttp.ClientSession
) -> None:
    document = b'{"id": "new:1", "note": "exactly  so"}'
    async with http.put(url(api, "new%3A1"), data=document) as response:
        assert response.status == 204
    put = await fetch(http, api, "new:1")
    async with http.delete(url(api, ORDER)) as response:
        assert response.status == 204
    api.behave(updated_at="2011-05-01T12:00:00Z", any_id=True)

    assert put == (200, document)
    assert await fetch(http, api, "new:1") == (200, document)
    assert (await fetch(http, api, ORDER))[0] == 404


# -- HTTP -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("latency", ["0", "0-0.05"])
async def test_pipelined_requests_are_answered_in_order(api: SimulatedApi, latency: str) -> None:
    api.behave(latency=latency)
    wanted = list(DOCUMENTS)[:200]

    async with raw(api) as (reader, writer):
        writer.write(b"".join(get(f"/orders/{order_id}") for order_id in wanted))
        bodies = [(await read_answer(reader))[1] for _ in wanted]

    assert bodies == [DOCUMENTS[order_id] for order_id in wanted]


@pytest.mark.parametrize(
    ("version", "headers", "says", "stays_open"),
    [
        ("1.1", [], None, True),
        ("1.1", ["Connection: close"], b"connection: close", False),
        ("1.0", [], b"connection: close", False),
        ("1.0", ["Connection: keep-alive"], b"connection: keep-alive", True),
        ("1.1", ["Connection: Upgrade", "Upgrade: h2c"], b"connection: close", False),
    ],
)
@pytest.mark.parametrize("latency", ["0", "0.01"])
async def test_the_connection_stays_open_exactly_as_long_as_http_says(
    api: SimulatedApi, *, latency: str, version: str, headers: list[str], says: bytes | None, stays_open: bool
) -> None:
    api.behave(latency=latency)

    async with raw(api) as (reader, writer):
        writer.write(get(f"/orders/{ORDER}", *headers, version=version))
        head, body = await read_answer(reader)
        if stays_open:
            writer.write(get(f"/orders/{OTHER}", "Connection: close"))
            _, next_body = await read_answer(reader)
            assert next_body == DOCUMENTS[OTHER]
        rest = await reader.read()

    assert body == DOCUMENTS[ORDER]
    assert (b"connection:" in head.lower()) == (says is not None)
    assert says is None or says in head.lower()
    assert rest == b""


@pytest.mark.parametrize("nonsense", [b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\x16\x03\x01\x02\x00\x01"])
async def test_what_is_no_http_is_400_and_the_end_of_the_connection(api: SimulatedApi, nonsense: bytes) -> None:
    async with raw(api) as (reader, writer):
        writer.write(nonsense)
        head, _ = await read_answer(reader)
        rest = await reader.read()

    assert head.startswith(b"HTTP/1.1 400 ")
    assert rest == b""


async def test_another_method_is_405_and_another_path_404(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    async with http.patch(url(api)) as patch, http.get(f"{api.base_url}/nothing") as nothing:
        pass

    assert (patch.status, patch.headers["Allow"]) == (405, "GET, HEAD, POST, PUT, DELETE")
    assert nothing.status == 404
    assert api.stats().requests == 0


# -- latency ----------------------------------------------------------------------------------------------------


async def test_an_answer_takes_its_latency(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(latency="0.1-0.15")

    begun = time.monotonic()
    await fetch(http, api)

    assert time.monotonic() - begun >= 0.099  # rounded to the nearest millisecond


@pytest.mark.parametrize(
    ("text", "low", "median", "high"),
    [("0.1", 0.1, 0.1, 0.1), ("0.1-0.3", 0.1, 0.2, 0.3), ("lognormal:0.12,0.4", 0.0, 0.12, 3600.0)],
)
def test_latencies_are_drawn_as_described(text: str, low: float, median: float, high: float) -> None:
    latency, random = Latency.parse(text), Random(1)

    drawn = [latency.draw(random) for _ in range(10_000)]

    assert low <= min(drawn)
    assert max(drawn) <= high
    assert statistics.median(drawn) == pytest.approx(median, rel=0.05)


@pytest.mark.parametrize("text", ["", "fast", "-1", "0.2-0.1", "0.1-", "nan", "inf", "lognormal:0.1", "lognormal:0,1"])
def test_what_is_no_latency_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a latency"):
        Behaviour(latency=text)


# -- faults -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("behaviour", "status", "retry_after"),
    [
        ({"error_rate": 1.0, "error_status": 502}, 502, None),
        ({"unavailable_rate": 1.0, "retry_after": 7}, 503, "7"),
        ({"unavailable_rate": 1.0, "retry_after_format": "none"}, 503, None),
        ({"not_found_rate": 1.0}, 404, None),
    ],
)
async def test_an_error_has_its_status_and_retry_after(
    api: SimulatedApi, http: aiohttp.ClientSession, behaviour: dict[str, object], status: int, retry_after: str | None
) -> None:
    api.behave(**behaviour)

    async with http.get(url(api)) as response:
        pass

    assert (response.status, response.headers.get("Retry-After")) == (status, retry_after)
    assert response.content_type == "application/problem+json"


async def test_retry_after_can_be_a_date_that_is_not_too_early(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(unavailable_rate=1.0, retry_after=7, retry_after_format="date")

    before = time.time()
    async with http.get(url(api)) as response:
        pass
    after = time.time()

    until = email.utils.parsedate_to_datetime(response.headers["Retry-After"]).timestamp()
    assert before + 7 <= until <= after + 8
    assert response.headers["Retry-After"].endswith(" GMT")


async def test_a_redirect_leads_to_the_same_order(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(redirect_rate=1.0, fail_first=1)

    async with http.get(url(api)) as response:
        body = await response.read()

    assert [step.status for step in response.history] == [302]
    assert body == DOCUMENTS[ORDER]


async def test_a_malformed_body_is_whole_and_no_json(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(malformed_rate=1.0)

    status, body = await fetch(http, api)

    assert status == 200
    assert body
    with pytest.raises(json.JSONDecodeError):
        json.loads(body)


async def test_a_body_of_the_wrong_type_is_json_and_no_order(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(wrong_type_rate=1.0)

    status, body = await fetch(http, api)

    assert status == 200
    assert not isinstance(json.loads(body), dict)


async def test_an_oversized_body_has_the_length_asked_for(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(oversize_rate=1.0, oversize_bytes=3_000_000)

    status, body = await fetch(http, api)

    assert (status, len(body)) == (200, 3_000_000)
    assert isinstance(json.loads(body), dict)


async def test_a_truncated_body_ends_before_its_length(api: SimulatedApi) -> None:
    api.behave(truncate_rate=1.0)

    async with raw(api) as (reader, writer):
        writer.write(get(f"/orders/{ORDER}"))
        answer = await reader.read()

    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(DOCUMENTS[ORDER])}".encode() in head
    assert body
    assert body == DOCUMENTS[ORDER][: len(body)]
    assert len(body) < len(DOCUMENTS[ORDER])


@pytest.mark.parametrize("latency", ["0", "0.01"])
async def test_a_reset_breaks_the_connection_without_an_answer(api: SimulatedApi, latency: str) -> None:
    api.behave(reset_rate=1.0, latency=latency)

    async with raw(api) as (reader, writer):
        writer.write(get(f"/orders/{ORDER}"))
        with pytest.raises(ConnectionResetError):
            await reader.read()

    assert api.stats().by_status == {"reset": 1}


async def test_a_hanging_request_is_held_until_the_client_goes(api: SimulatedApi) -> None:
    api.behave(hang_rate=1.0)

    async with raw(api) as (reader, writer):
        writer.write(get(f"/orders/{ORDER}"))
        await until(lambda: api.stats().concurrency == 1)
        api.behave(hang_rate=0.0)
        writer.write(get(f"/orders/{OTHER}"))
        await until(lambda: api.stats().concurrency == 2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
    await until(lambda: api.stats().concurrency == 0)

    assert api.stats().by_status == {"abandoned": 2}


async def test_above_the_rate_the_answer_is_429_with_retry_after(
    api: SimulatedApi, http: aiohttp.ClientSession
) -> None:
    api.behave(rate_limit=0.001, rate_burst=5, retry_after=9)

    statuses = Counter([(await fetch(http, api))[0] for _ in range(8)])
    async with http.get(url(api)) as response:
        pass

    assert statuses == {200: 5, 429: 3}
    assert response.headers["Retry-After"] == "9"


def test_the_token_bucket_refills_at_its_rate_and_no_further_than_its_burst() -> None:
    times = iter([100.0] * 5 + [100.125] * 2 + [160.0] * 4)
    bucket = Bucket(10.0, 3.0, lambda: next(times))

    at_once = [bucket.take() for _ in range(4)]
    after_a_tenth = [bucket.take() for _ in range(2)]
    after_a_minute = [bucket.take() for _ in range(4)]

    assert at_once == [True, True, True, False]
    assert after_a_tenth == [True, False]
    assert after_a_minute == [True, True, True, False]


async def test_above_the_concurrency_the_answer_is_429(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    api.behave(concurrency_limit=2, hang_rate=1.0)

    async with raw(api) as (_, first), raw(api) as (_, second):
        first.write(get(f"/orders/{ORDER}"))
        second.write(get(f"/orders/{ORDER}"))
        await until(lambda: api.stats().concurrency == 2)
        api.behave(hang_rate=0.0)
        refused, _ = await fetch(http, api)
    await until(lambda: api.stats().concurrency == 0)
    served, _ = await fetch(http, api)

    assert (refused, served) == (429, 200)


async def test_an_outage_is_503_for_every_order_and_ends_when_told(
    api: SimulatedApi, http: aiohttp.ClientSession
) -> None:
    async with http.patch(f"{api.base_url}/behaviour", json={"down": "503", "latency": "60"}) as response:
        assert response.status == 200
    down = [(await fetch(http, api, order_id))[0] for order_id in (ORDER, OTHER, THIRD)]
    async with http.patch(f"{api.base_url}/behaviour", json={"down": None, "latency": "0"}) as response:
        assert response.status == 200
    up = [(await fetch(http, api, order_id))[0] for order_id in (ORDER, OTHER, THIRD)]

    assert down == [503] * 3
    assert up == [200] * 3


async def test_an_outage_can_reset_every_connection_but_the_control_routes(
    api: SimulatedApi, http: aiohttp.ClientSession
) -> None:
    api.behave(down="reset")

    with pytest.raises(aiohttp.ClientError):
        await fetch(http, api)
    async with http.get(f"{api.base_url}/stats") as response:
        stats = await response.json()

    assert stats["by_status"].keys() == {"reset"}


@pytest.mark.parametrize(
    ("authorization", "status"),
    [(None, 401), ("Bearer wrong", 401), ("Basic secret", 401), ("Bearer secret", 200)],
)
async def test_only_the_right_token_is_let_in(
    api: SimulatedApi, http: aiohttp.ClientSession, authorization: str | None, status: int
) -> None:
    api.behave(token="secret")

    async with http.get(url(api), headers={"Authorization": authorization} if authorization else {}) as response:
        pass

    assert response.status == status
    assert ("WWW-Authenticate" in response.headers) == (status == 401)


async def test_faults_can_be_limited_to_the_first_tries_of_each_order(
    api: SimulatedApi, http: aiohttp.ClientSession
) -> None:
    api.behave(error_rate=1.0, fail_first=2)

    tries = [[(await fetch(http, api, order_id))[0] for _ in range(4)] for order_id in (ORDER, OTHER)]
    api.behave(error_status=503)
    anew = [(await fetch(http, api))[0] for _ in range(3)]

    assert tries == [[500, 500, 200, 200]] * 2
    assert anew == [503, 503, 200]


async def test_shares_are_met_and_the_same_seed_draws_the_same_faults(http: aiohttp.ClientSession) -> None:
    async def statuses(seed: int) -> list[int]:
        behaviour = Behaviour(error_rate=0.2, not_found_rate=0.3)
        async with SimulatedApi(behaviour, seed=seed) as api:
            return [(await fetch(http, api))[0] for _ in range(1000)]

    first, again, other = [await statuses(seed) for seed in (1, 1, 2)]

    assert first == again
    assert first != other
    assert first.count(500) == pytest.approx(200, abs=50)
    assert first.count(404) == pytest.approx(300, abs=50)


@pytest.mark.parametrize("form", ["items", "members", "fields", "x"])
async def test_a_quota_is_counted_down_in_the_headers_and_then_refused(form: str, http: aiohttp.ClientSession) -> None:
    async with SimulatedApi(Behaviour(any_id=True, quota=3, quota_window=60.0, quota_headers=form)) as api:
        left = []
        for _ in range(4):
            async with http.get(api.url_template.format(order_id="a")) as response:
                left.append((response.status, remaining_of(response.headers, time.time())))

    assert [(status, remaining.requests) for status, remaining in left if remaining] == [
        (200, 2), (200, 1), (200, 0), (429, 0)
    ]  # fmt: skip
    assert api.stats().busiest_second == 4


# -- control ----------------------------------------------------------------------------------------------------


async def test_the_behaviour_reads_back_as_it_was_set(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    wanted = {
        **dict.fromkeys(SHARES, 0.01),
        "latency": "lognormal:0.12,0.4",
        "error_status": 502,
        "oversize_bytes": 1000,
        "fail_first": 3,
        "rate_limit": 100.5,
        "rate_burst": 7,
        "concurrency_limit": 20,
        "capacity": 30,
        "capacity_queue": 40,
        "quota": 50,
        "quota_window": 2.5,
        "quota_headers": "members",
        "retry_after": 2,
        "retry_after_format": "date",
        "down": "reset",
        "token": "secret",
        "basic": "user:password",
        "key": "X-Api-Key: k1",
        "client": "shop:secret",
        "token_lifetime": 2.5,
        "token_latency": 0.1,
        "authority_down": "hang",
        "updated_at": "2011-05-01T12:00:00Z",
        "currency": "EUR",
        "list_limit": 20,
        "list_shape": "array",
        "breaking_id": "X",
        "any_id": True,
        "any_bytes": 500,
    }

    async with http.put(f"{api.base_url}/behaviour", json=wanted) as put:
        pass
    async with http.get(f"{api.base_url}/behaviour") as response:
        shown = await response.json()

    assert put.status == 200
    assert shown == wanted
    assert shown.keys() == set(Behaviour.__struct_fields__)


async def test_put_sets_what_it_leaves_out_back_and_patch_leaves_it(
    api: SimulatedApi, http: aiohttp.ClientSession
) -> None:
    api.behave(retry_after=5)

    async with http.patch(f"{api.base_url}/behaviour", json={"error_status": 503}):
        patched = api.behaviour
    async with http.put(f"{api.base_url}/behaviour", json={"error_status": 504}):
        put = api.behaviour

    assert (patched.retry_after, patched.error_status) == (5, 503)
    assert (put.retry_after, put.error_status) == (1, 504)


@pytest.mark.parametrize("method", ["PUT", "PATCH"])
@pytest.mark.parametrize(
    "body",
    [
        "",
        "{",
        "[]",
        '{"error_rate": 1.5}',
        '{"error_rate": "often"}',
        '{"errors": 1}',
        '{"error_rate": 0.6, "hang_rate": 0.6}',
        '{"latency": "slow"}',
        '{"latency": 1}',
        '{"down": "yes"}',
        '{"error_status": 200}',
        '{"updated_at": "2011-05-01T12:00:00"}',
    ],
)
async def test_a_behaviour_that_cannot_be_is_422_and_changes_nothing(
    api: SimulatedApi, http: aiohttp.ClientSession, method: str, body: str
) -> None:
    before = api.behave(retry_after=5)

    async with http.request(method, f"{api.base_url}/behaviour", data=body) as response:
        problem = await response.json(content_type="application/problem+json")

    assert response.status == 422
    assert problem["detail"]
    assert api.behaviour == before


async def test_stats_are_right_under_concurrency(api: SimulatedApi) -> None:
    api.behave(hang_rate=1.0)
    before = time.time()

    async with contextlib.AsyncExitStack() as stack:
        for _ in range(30):
            _, writer = await stack.enter_async_context(raw(api))
            writer.write(get(f"/orders/{ORDER}"))
        await until(lambda: api.stats().concurrency == 30)
        during = api.stats()
        api.behave(hang_rate=0.0)
        reader, writer = await stack.enter_async_context(raw(api))
        writer.write(get(f"/orders/{OTHER}") * 5 + get("/orders/none"))
        for _ in range(6):
            await read_answer(reader)
    await until(lambda: api.stats().open_connections == 0)
    after = api.stats()

    assert (during.concurrency, during.peak_concurrency, during.open_connections) == (30, 30, 30)
    assert (after.concurrency, after.peak_concurrency) == (0, 31)
    assert after.requests == 36
    assert after.by_id == {ORDER: 30, OTHER: 5, "none": 1}
    assert after.by_status == {"abandoned": 30, "200": 5, "404": 1}
    assert after.first_request is not None
    assert after.last_request is not None
    assert before - 0.1 <= after.first_request.unix <= after.last_request.unix <= time.time() + 0.1
    assert after.first_request.monotonic < after.last_request.monotonic <= time.monotonic()


async def test_stats_over_http_can_leave_ids_out_and_start_anew(api: SimulatedApi, http: aiohttp.ClientSession) -> None:
    await fetch(http, api)

    async with http.get(f"{api.base_url}/stats") as response:
        full = await response.json()
    async with http.get(f"{api.base_url}/stats?ids=0") as response:
        short = await response.json()
    async with http.delete(f"{api.base_url}/stats") as response:
        assert response.status == 204
    anew = api.stats()

    assert full["by_id"] == {ORDER: 1}
    assert (short["requests"], short["by_id"]) == (1, {})
    assert (anew.requests, anew.by_id, anew.by_status, anew.first_request) == (0, {}, {}, None)


# -- life and death ---------------------------------------------------------------------------------------------


async def test_stopping_drops_open_connections_and_frees_the_port() -> None:
    async with SimulatedApi(Behaviour(hang_rate=1.0)) as api:
        host, port = api.base_url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(get(f"/orders/{ORDER}"))
        await until(lambda: api.stats().concurrency == 1)

    rest = await reader.read()
    writer.close()
    await writer.wait_closed()

    assert rest == b""
    async with SimulatedApi(port=int(port)) as again:
        assert again.url_template == api.url_template


async def test_a_port_already_taken_is_said_in_one_line(api: SimulatedApi) -> None:
    port = int(api.base_url.rsplit(":", 1)[1])

    with pytest.raises(UserError, match=f"^port {port} on 127.0.0.1 is already taken.*$"):
        async with SimulatedApi(port=port):
            pass


@contextlib.asynccontextmanager
async def command(*options: str) -> AsyncIterator[asyncio.subprocess.Process]:
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "ingest", "upstream", *options, stdout=pipe, stderr=pipe
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
async def test_the_command_serves_until_it_is_told_to_stop(http: aiohttp.ClientSession, signum: signal.Signals) -> None:
    async with command("--port", "0", "--seed", "5", "--error-rate", "1", "--fail-first", "1") as process:
        assert process.stdout is not None
        template = (await process.stdout.readline()).decode().strip()
        async with http.get(template.format(order_id=ORDER)) as failed:
            pass
        async with http.get(template.format(order_id=ORDER)) as response:
            body = await response.read()
        process.send_signal(signum)
        out, err = await process.communicate()

    assert template.endswith("/orders/{order_id}")
    assert failed.status == 500
    assert body == DOCUMENTS[ORDER]
    assert process.returncode == 0
    assert out == b""
    assert b"seed 5" in err


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (["--latency", "slow"], "'slow'"),
        (["--retry-after-format", "maybe"], "--retry-after-format"),
        (["--error-rate", "0.6", "--hang-rate", "0.6"], "shares"),
    ],
)
async def test_the_command_exits_with_2_for_a_behaviour_that_cannot_be(options: list[str], names: str) -> None:
    async with command("--port", "0", *options) as process:
        out, err = await process.communicate()

    assert process.returncode == 2
    assert out == b""
    assert err.decode().count("\n") == 1
    assert names in err.decode()


async def test_any_id_can_have_an_order_of_a_given_size() -> None:
    async with SimulatedApi(any_id_of(1000)) as api, aiohttp.ClientSession() as session:
        sizes = []
        for number in range(20):
            async with session.get(api.url_template.replace("{order_id}", f"made-up-{number}")) as response:
                sizes.append(len(await response.read()))

    assert all(900 < size < 1100 for size in sizes)


def any_id_of(size: int) -> Behaviour:
    return Behaviour(any_id=True, any_bytes=size)
