"""Webhooks over HTTP on a real Redis, with their responses, metrics, log events, entries and rows."""

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import webhook_requests as made
from http_api import NOWHERE, Api, Serve, queued, running_api
from integration.scene import Scene
from redis.asyncio import Redis
from support import eventually
from webhook_requests import SECRET, STANDARD_SECRET

from ingest.domain.webhook_result import WebhookResult

SOURCES = """
[sources.shop]
profile = "shopify"
secret_files = ["shopify"]

[sources.pushing]
profile = "shopify"
secret_files = ["shopify"]
document = "$"

[sources.express]
profile = "woocommerce"
secret_files = ["shopify"]
express = true

[sources.other]
profile = "standard"
secret_files = ["standard"]
order_id = "data.id"

[sources.payments]
profile = "stripe"
secret_files = ["shopify"]
events = ["checkout.session.completed"]
order_id = "data.object.metadata.order_id"

[sources.batches]
profile = "standard"
secret_files = ["standard"]
order_ids = "events[].id"

[sources.verified.challenge]
parameter = "hub.challenge"
token_parameter = "hub.verify_token"
token_file = "token"

[sources.verified]
profile = "woocommerce"
secret_files = ["shopify"]
"""
EVENT = b'{"type":"order.created","data":{"id":"7"}}'


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "shopify").write_text(SECRET)
    (tmp_path / "standard").write_text(STANDARD_SECRET)
    (tmp_path / "token").write_text("a-shared-token")
    path = tmp_path / "webhooks.toml"
    path.write_text(SOURCES)
    return path


@pytest.fixture
async def api(serve: Serve, file: Path) -> AsyncIterator[Api]:
    async with serve(webhooks=str(file)) as api:
        yield api


async def send(api: Api, source: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
    """The status, and the result or the code of the problem."""
    status, answer = await api.post(f"/v1/webhooks/{source}", data=body, headers=headers)
    return status, answer.get("result") or answer["code"]


def counted(api: Api, source: str = "shop") -> dict[str, float]:
    """How often each result has been counted."""
    found = {result: api.metrics.webhooks[source, result] for result in WebhookResult}
    return {
        result.value: counter._cells[counter._at] for result, counter in found.items() if counter._cells[counter._at]
    }


def logged(capsys: pytest.CaptureFixture[str]) -> str:
    output = capsys.readouterr()
    return output.out + output.err


async def test_a_signed_webhook_is_in_the_queue_when_it_is_answered(api: Api, redis: Redis, queue_name: str) -> None:
    body = b'{"id": 450789469}'

    assert await send(api, "shop", body, made.shopify(body)) == (200, "accepted")

    (entry,) = await queued(redis, queue_name)
    assert (entry[b"order_id"], entry[b"origin"]) == (b"450789469", b"webhook:shop")
    assert b"document" not in entry
    assert counted(api) == {"accepted": 1}


async def test_every_profile_is_received(api: Api, redis: Redis, queue_name: str) -> None:
    session = b'{"type":"checkout.session.completed","id":"evt_1","data":{"object":{"metadata":{"order_id":"P-1"}}}}'

    assert await send(api, "other", EVENT, made.standard(EVENT, at=time.time())) == (200, "accepted")
    assert await send(api, "payments", session, made.stripe(session, at=time.time())) == (200, "accepted")
    assert await send(api, "express", b'{"id":9}', made.woocommerce(b'{"id":9}')) == (200, "accepted")

    assert [entry[b"order_id"] for entry in await queued(redis, queue_name)] == [b"7", b"P-1"]
    assert [entry[b"order_id"] for entry in await queued(redis, queue_name, "express")] == [b"9"]


async def test_one_webhook_with_several_orders_queues_all_of_them_once(
    api: Api, redis: Redis, queue_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [f"B-{number}" for number in range(100)]
    body = json.dumps({"type": "order.batch", "events": [{"id": name} for name in [*ids, "bad\n"]]}).encode()

    for expected in ("accepted", "duplicate"):
        assert await send(api, "batches", body, made.standard(body, at=time.time())) == (200, expected)

    assert [entry[b"order_id"].decode() for entry in await queued(redis, queue_name)] == ids
    assert counted(api, "batches") == {"accepted": 1, "duplicate": 1, "malformed": 2}
    assert logged(capsys).count("webhook_refused") == 1


async def test_a_sender_verifies_the_url_by_its_challenge(api: Api) -> None:
    path = "/v1/webhooks/verified?hub.mode=subscribe&hub.challenge=11582&hub.verify_token="

    async with api.http.get(f"{api.url}{path}a-shared-token") as response:
        assert (response.status, await response.text(), response.content_type) == (200, "11582", "text/plain")
        assert response.headers["X-Content-Type-Options"] == "nosniff"

    for query, status, code in (("wrong", 403, "bad_challenge"), ("a&hub.challenge=2", 400, "bad_challenge")):
        found, answer = await api.get(path + query)
        assert (found, answer["code"]) == (status, code)
    assert (await api.get("/v1/webhooks/shop?challenge=1"))[0] == 405
    assert (await api.get("/v1/webhooks/unknown?challenge=1"))[0] == 404
    assert counted(api, "verified") == {"ignored": 1, "bad_signature": 1, "malformed": 1}


async def test_a_wrong_signature_is_refused_counted_and_logged_once_without_the_body(
    api: Api, redis: Redis, queue_name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"id": 1, "email": "jane@customer.example"}'
    forged = made.shopify(body, secret="another secret")

    assert await send(api, "shop", body, forged) == (401, "bad_signature")
    assert await send(api, "shop", body, {}) == (401, "bad_signature")

    assert await queued(redis, queue_name) == []
    assert counted(api) == {"bad_signature": 2}
    text = logged(capsys)
    assert text.count("webhook_refused") == 1
    assert "jane" not in text
    assert forged["X-Shopify-Hmac-Sha256"] not in text
    assert SECRET not in text


async def test_an_expired_timestamp_is_refused(api: Api, redis: Redis, queue_name: str) -> None:
    for age in (400, -400):
        assert await send(api, "other", EVENT, made.standard(EVENT, at=time.time() - age)) == (401, "expired")

    assert await queued(redis, queue_name) == []
    assert counted(api, "other") == {"expired": 2}


async def test_a_replayed_webhook_is_acknowledged_and_not_queued_again(api: Api, redis: Redis, queue_name: str) -> None:
    body = b'{"id": 1}'

    found = [await send(api, "shop", body, made.shopify(body)) for _ in range(3)]

    assert found == [(200, "accepted"), (200, "duplicate"), (200, "duplicate")]
    assert len(await queued(redis, queue_name)) == 1
    assert counted(api) == {"accepted": 1, "duplicate": 2}


async def test_fifty_announcements_of_one_order_are_queued_once(api: Api, redis: Redis, queue_name: str) -> None:
    body = b'{"id": 1}'

    found = await asyncio.gather(
        *(send(api, "shop", body, made.shopify(body, webhook_id=f"w-{number}")) for number in range(50))
    )

    assert sorted(found) == [(200, "accepted")] + [(200, "duplicate")] * 49
    assert len(await queued(redis, queue_name)) == 1


async def test_one_id_of_two_orders_is_not_taken_for_a_replay(api: Api, redis: Redis, queue_name: str) -> None:
    for body in (b'{"id": 1}', b'{"id": 2}'):
        assert await send(api, "shop", body, made.shopify(body)) == (200, "accepted")

    assert [entry[b"order_id"] for entry in await queued(redis, queue_name)] == [b"1", b"2"]


async def test_what_is_no_order_is_acknowledged_and_counted(api: Api, redis: Redis, queue_name: str) -> None:
    body = b'{"id": 1}'

    assert await send(api, "shop", body, made.shopify(body, topic="app/uninstalled")) == (200, "ignored")
    assert await send(api, "express", b"webhook_id=12", {}) == (200, "ignored")

    assert await queued(redis, queue_name) == []
    assert counted(api) == {"ignored": 1}


async def test_the_webhook_of_an_abandoned_checkout_is_acknowledged_until_it_becomes_an_order(
    serve: Serve, file: Path, redis: Redis, queue_name: str
) -> None:
    draft, placed = b'{"id":50,"status":"checkout-draft"}', b'{"id":50,"status":"processing"}'

    async with serve(webhooks=str(file), mapping="woocommerce") as api:
        assert await send(api, "express", draft, made.woocommerce(draft)) == (200, "ignored")
        assert await queued(redis, queue_name, "express") == []
        assert await send(api, "express", placed, made.woocommerce(placed)) == (200, "accepted")

    assert [entry[b"order_id"] for entry in await queued(redis, queue_name, "express")] == [b"50"]


async def test_a_signed_body_without_an_id_is_an_error_that_names_the_place(
    api: Api, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"name": "jane@customer.example"}'

    assert await send(api, "shop", body, made.shopify(body)) == (422, "no_order_id")
    assert await send(api, "shop", b"{", made.shopify(b"{")) == (400, "invalid_json")

    assert counted(api) == {"malformed": 2}
    text = logged(capsys)
    assert "there is no ID of an order: id" in text
    assert "jane" not in text


async def test_a_body_over_the_limit_is_refused(serve: Serve, file: Path) -> None:
    body = b'{"id": 1, "note": "%s"}' % (b"x" * 5_000)
    async with serve(webhooks=str(file), api_body_limit=4_096) as api:
        assert await send(api, "shop", body, made.shopify(body)) == (413, "body_too_large")
        assert counted(api) == {"malformed": 1}


async def test_a_webhook_for_whose_body_there_is_no_memory_is_no_mistake_of_its_sender(
    serve: Serve, file: Path
) -> None:
    body = b'{"id": 1, "note": "%s"}' % (b"x" * 500_000)
    limits = {"api_body_limit": 1 << 20, "api_body_memory": 2 << 20}
    async with serve(webhooks=str(file), **limits) as api, AsyncExitStack() as stack:
        for _ in range(2):
            _, other = await stack.enter_async_context(api.connection())
            other.write(b"POST /v1/webhooks/express HTTP/1.1\r\nHost: h\r\nContent-Length: 1000000\r\n\r\n")
            await other.drain()
            other.write(b"x" * 700_000)

        async def refused() -> bool:
            # The body comes after the header: only then it takes memory.
            status, answer = await api.post("/v1/webhooks/shop", data=body, headers=made.shopify(body), expect100=True)
            return (status, answer.get("code")) == (503, "busy")

        await eventually(refused)

        results = counted(api)
        assert (results["unavailable"], results.get("malformed")) == (1, None)


async def test_a_large_body_is_checked_like_a_small_one(api: Api, redis: Redis, queue_name: str) -> None:
    body = b'{"id": 1, "note": "%s"}' % (b"x" * 1_000_000)

    assert await send(api, "shop", body + b" ", made.shopify(body)) == (401, "bad_signature")
    assert await send(api, "pushing", body, made.shopify(body)) == (200, "accepted")

    (entry,) = await queued(redis, queue_name)
    assert entry[b"document"] == body


async def test_an_unknown_webhook_is_not_found(api: Api) -> None:
    body = b'{"id": 1}'

    for name in ("nobody", "SHOP", "shop%2F", "%00"):
        assert await send(api, name, body, made.shopify(body)) == (404, "unknown_webhook")


async def test_an_unknown_webhook_is_refused_before_its_body_has_come(api: Api) -> None:
    async with api.connection() as (reader, writer), asyncio.timeout(15):
        writer.write(b"POST /v1/webhooks/nobody HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n{")
        # Long before INGEST_API_BODY_TIMEOUT.
        answered = await reader.readline()

    assert answered.startswith(b"HTTP/1.1 404 ")


async def test_without_sources_there_is_no_such_path(serve: Serve) -> None:
    async with serve() as api:
        assert await send(api, "shop", b"{}", {}) == (404, "no_such_path")


async def test_while_redis_is_unavailable_the_sender_is_told_to_come_again(
    queue_name: str, file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    body = b'{"id": 1}'
    async with (
        running_api("redis://127.0.0.1:1/0", NOWHERE, queue_name, webhooks=str(file)) as api,
        api.http.post(f"{api.url}/v1/webhooks/shop", data=body, headers=made.shopify(body)) as answer,
    ):
        assert answer.status == 503
        assert int(answer.headers["Retry-After"]) >= 1
        assert counted(api) == {"unavailable": 1}

    assert "queue_unavailable" in logged(capsys)


@asynccontextmanager
async def mute_server() -> AsyncIterator[int]:
    """Accepts connections, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


async def test_while_redis_does_not_answer_the_sender_is_told_in_time(queue_name: str, file: Path) -> None:
    body = b'{"id": 1}'
    async with (
        mute_server() as port,
        running_api(f"redis://127.0.0.1:{port}/0", NOWHERE, queue_name, webhooks=str(file)) as api,
        asyncio.timeout(30),
    ):
        assert await send(api, "shop", body, made.shopify(body)) == (503, "queue_unavailable")


async def test_a_secret_can_be_rotated_while_the_api_runs(api: Api, file: Path) -> None:
    number = 0

    async def is_accepted(secret: str) -> bool:
        nonlocal number
        number += 1
        body = b'{"id": %d}' % number
        status, _ = await send(api, "shop", body, made.shopify(body, secret=secret, webhook_id=f"r-{number}"))
        return status == 200

    def replace(content: str) -> None:
        new = file.parent / "new"
        new.write_text(content)
        new.replace(file.parent / "shopify")

    assert await is_accepted(SECRET)
    assert not await is_accepted("the next one")
    replace(f"the next one\n{SECRET}\n")
    await eventually(lambda: is_accepted("the next one"))
    assert await is_accepted(SECRET)
    replace("the next one\n")

    async def is_refused() -> bool:
        return not await is_accepted(SECRET)

    await eventually(is_refused)
    assert await is_accepted("the next one")


def shopify_order(**changed: Any) -> bytes:
    sample = json.loads((Path(__file__).parents[1] / "mapping_samples" / "shopify-rest.json").read_text())
    return json.dumps({**sample["order"], **changed}).encode()


async def test_a_pushed_document_is_stored_by_a_worker_that_fetches_nothing(
    redis_url: str, dsn: str, queue_name: str, file: Path
) -> None:
    body = shopify_order(id=450789469)
    async with (
        Scene.open(redis_url, dsn, queue_name) as scene,
        running_api(redis_url, dsn, queue_name, webhooks=str(file)) as api,
    ):
        assert await send(api, "pushing", body, made.shopify(body)) == (200, "accepted")
        async with scene.worker(mapping="shopify"):
            await scene.finished()

        row = (await scene.rows())["450789469"]
        assert (row["currency"], row["customer_id"]) == ("HKD", "207119551")
        assert scene.api.stats().requests == 0
        assert await scene.dead() == []
