"""API keys over real HTTP: the headers of a rate limit are on every answer, and nothing is queued without a key."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
from http_api import Api, Serve
from redis.asyncio import Redis
from structlog.testing import capture_logs
from support import eventually

from ingest.api.admission.access import KeyAccess
from ingest.api.admission.rate_limit import SharedBuckets
from ingest.api.orders.ndjson import BATCH
from ingest.domain.api_key import ApiKey, Denial, RateLimit, Scope, digest_of, make_key
from ingest.queue.layout.keys import Keys
from ingest.telemetry.shared_metrics import Counter

KEY = make_key(b"limited " * 2)
BEARER = {"Authorization": f"Bearer {KEY}"}
POLICY = '"default";q=3;w=300'


LIMITED = ApiKey("limited", digest_of(KEY), frozenset({Scope.ENQUEUE}), RateLimit(0.01, 3))


@pytest.fixture
def access() -> KeyAccess:
    cells = memoryview(bytearray(8 * len(Denial))).cast("d")
    denied = {reason.value: Counter(cells, at) for at, reason in enumerate(Denial)}
    return KeyAccess([LIMITED], SharedBuckets(), denied, lambda: 0.0)


@pytest.fixture
async def api(serve: Serve, access: KeyAccess) -> AsyncIterator[Api]:
    async with serve(access) as api:
        yield api


async def answer_to(api: Api, body: object) -> tuple[int, dict[str, str]]:
    async with api.http.post(f"{api.url}/v1/orders", json=body, headers=BEARER) as answer:
        kept = ("RateLimit", "RateLimit-Policy", "Retry-After", "Content-Type")
        return answer.status, {name: answer.headers[name] for name in kept if name in answer.headers}


async def test_answers_and_errors_of_a_limited_key_tell_what_is_left(api: Api) -> None:
    accepted = await answer_to(api, {"order_ids": ["1"]})
    invalid = await answer_to(api, {"order_ids": ["a b "]})
    last = await answer_to(api, {"order_ids": ["1"]})
    refused = await answer_to(api, {"order_ids": ["1"]})

    assert [status for status, _ in (accepted, invalid, last, refused)] == [202, 422, 202, 429]
    assert [headers["RateLimit"] for _, headers in (accepted, invalid, last, refused)] == [
        '"default";r=2;t=100',
        '"default";r=1;t=200',
        '"default";r=0;t=100',
        '"default";r=0;t=100',
    ]
    assert {headers["RateLimit-Policy"] for _, headers in (accepted, invalid, last, refused)} == {POLICY}
    assert refused[1]["Retry-After"] == "100"
    assert refused[1]["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    "headers",
    [
        "",
        f"Authorization: Bearer {KEY[:-1]}\r\n",
        f"Authorization: Bearer {KEY}\r\nAuthorization: Bearer {KEY}\r\n",
        f"Authorization: Bearer {KEY}\r\nX-API-Key: {KEY}\r\n",
        f"Authorization: Bearer {KEY}\x00\r\n",
        f"Authorization: Bearer {KEY}, Bearer {KEY}\r\n",
        "X-API-Key: " + "a" * 7_000 + "\r\n",
        "X-API-Key: \u00e9\r\n",
    ],
)
async def test_headers_as_an_attacker_sends_them_are_refused_and_queue_nothing(
    api: Api, redis: Redis, queue_name: str, headers: str
) -> None:
    body = '{"order_ids": ["1"]}'
    lines = f"Host: x\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"

    async with api.connection() as (reader, writer):
        writer.write(f"POST /v1/orders HTTP/1.1\r\n{lines}{headers}\r\n{body}".encode())
        answer = (await reader.read()).decode()

    assert answer.split()[1] in {"400", "401"}
    assert KEY[:-1] not in answer
    assert await redis.xlen(Keys.of(queue_name).stream) == 0


async def test_a_key_that_announces_orders_cannot_push_their_contents(api: Api) -> None:
    status, problem = await api.call("PUT", "/v1/orders/1", json={"id": "1"}, headers=BEARER)

    assert (status, problem["code"], problem["scope"]) == (403, "missing_scope", "push")


async def test_a_rejection_is_logged_once_a_minute_with_key_route_and_reason(api: Api) -> None:
    with capture_logs() as logs:
        for _ in range(3):
            assert (await api.call("DELETE", "/v1/orders/1", headers=BEARER))[0] == 403
        assert (await api.call("GET", "/v1/queue", headers={"X-API-Key": "not-a-key"}))[0] == 401

    rejected = [entry for entry in logs if entry["event"] == "request_rejected"]
    assert [(entry["key"], entry["route"], entry["reason"]) for entry in rejected] == [
        ("limited", "DELETE /v1/orders/{order_id}", "missing_scope"),
        ("", "GET /v1/queue", "unauthorized"),
    ]
    assert KEY not in str(logs)
    assert "not-a-key" not in str(logs)


@pytest.mark.parametrize("scopes", [None, frozenset({Scope.READ})])
async def test_an_upload_ends_when_its_key_is_revoked_or_loses_the_scope(
    api: Api, access: KeyAccess, redis: Redis, queue_name: str, scopes: frozenset[Scope] | None
) -> None:
    first, second = ("".join(f"{start + number}\n" for number in range(BATCH)).encode() for start in (0, BATCH))

    async def queued() -> int:
        return int(await redis.xlen(Keys.of(queue_name).stream))

    async def body() -> AsyncIterator[bytes]:
        yield first
        await eventually(queued)
        access.use([] if scopes is None else [replace(LIMITED, scopes=scopes)])
        yield second

    status, answer = await api.post(
        "/v1/orders", data=body(), headers={**BEARER, "Content-Type": "application/x-ndjson"}
    )

    assert (status, answer["code"]) == ((401, "unauthorized") if scopes is None else (403, "missing_scope"))
    assert (answer["accepted"], await queued()) == (BATCH, BATCH)
