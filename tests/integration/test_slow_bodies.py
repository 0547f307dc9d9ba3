"""Slow and endless bodies do not delay other requests."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
import webhook_requests as made
from http_api import Api, Serve
from integration.scene import document
from structlog.testing import capture_logs
from webhook_requests import SECRET

WEBHOOKS = '[sources.shop]\nprofile = "shopify"\nsecret_files = ["shopify"]\n'


@pytest.fixture
def webhooks(tmp_path: Path) -> str:
    (tmp_path / "shopify").write_text(SECRET)
    path = tmp_path / "webhooks.toml"
    path.write_text(WEBHOOKS)
    return str(path)


@asynccontextmanager
async def dripping(api: Api, count: int, announced: int, sent: int) -> AsyncIterator[None]:
    """Webhooks of a client without the secret: each announces a body, sends a part of it, and then a byte now and then."""
    async with AsyncExitStack() as stack:
        clients = [(await stack.enter_async_context(api.connection()))[1] for _ in range(count)]
        for writer in clients:
            writer.write(b"POST /v1/webhooks/shop HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % announced)
            writer.write(b" " * sent)
        await asyncio.gather(*(writer.drain() for writer in clients))

        async def drip() -> None:
            while True:
                for writer in clients:
                    writer.write(b" ")
                await asyncio.sleep(0.2)

        task = asyncio.create_task(drip())
        try:
            yield
        finally:
            task.cancel()


async def send_signed(api: Api, size: int) -> int:
    body = b'{"id": 1, "note": "%s"}' % (b"x" * size)
    return (await api.post("/v1/webhooks/shop", data=body, headers=made.shopify(body)))[0]


async def push(api: Api, order_id: str) -> int:
    body = document(order_id).removesuffix(b"}") + b',"note":"%s"}' % (b"x" * 300_000)
    return (await api.call("PUT", f"/v1/orders/{order_id}", data=body, headers={"Content-Type": "application/json"}))[0]


async def test_large_bodies_that_come_slowly_leave_memory_to_signed_webhooks_and_pushes(
    serve: Serve, webhooks: str
) -> None:
    # The slow bodies fill the three quarters of the memory that are not reserved for callers with a key.
    limits = {"api_body_memory": 16 * 1024 * 1024, "api_body_limit": 4 * 1024 * 1024}
    with capture_logs() as logs:
        async with serve(webhooks=webhooks, **limits) as api, dripping(api, 15, 4_000_000, 838_000):
            await asyncio.sleep(1)  # a moment later, nothing but drips has come for a while
            began = time.monotonic()
            statuses = [await send_signed(api, 300_000) for _ in range(20)]
            pushed = [await push(api, f"order-{number}") for number in range(20)]
            took = time.monotonic() - began

    assert set(statuses) == {200}
    assert set(pushed) == {202}
    assert took < 10
    assert any(
        (entry["event"], entry.get("resource")) == ("api_full", "memory") and entry["log_level"] == "warning"
        for entry in logs
    )


async def test_many_connections_with_half_a_body_leave_room_for_others(serve: Serve, webhooks: str) -> None:
    limits = {"api_body_memory": 16 * 1024 * 1024, "api_body_limit": 1024 * 1024, "api_connections": 400}
    async with serve(webhooks=webhooks, **limits) as api, dripping(api, 400, 60_000, 30_000):
        await asyncio.sleep(1)  # as above
        statuses = [await send_signed(api, 60_000) for _ in range(20)]
        statuses.append((await api.post("/v1/orders", json={"order_ids": ["1"]}))[0])

    assert statuses == [*[200] * 20, 202]
