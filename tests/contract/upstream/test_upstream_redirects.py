"""Targets of redirects, and errors for responses without a document."""

import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from fakes.upstream import delivered
from listener import listening
from raw_http import LIMITS, ORDER, TOKEN, Connect, answering, http, serving

from ingest.domain.deliveries.delivery import DeadReason, RetryReason
from ingest.domain.errors import PermanentFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.upstream.client import transport_opener
from ingest.upstream.http.transport import Kind, NoDocument, NoResponse, Options


@pytest.mark.parametrize("redirects", [5, 6])
async def test_five_redirects_are_followed_and_no_more(connect: Connect, redirects: int) -> None:
    async def count_down(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        left = int(head.split(b"/")[1].split(b" ")[0])
        to = f"Location: /{left - 1}"
        writer.write(
            http(b"", to, "Content-Length: 0", status="302 Found") if left else http(b"{}", "Content-Length: 2")
        )

    async with serving(count_down) as port, connect(f"http://127.0.0.1:{port}/{{order_id}}") as client:
        if redirects == 5:
            assert (await delivered(client.fetch(FetchRequest("5")))).body == b"{}"
        else:
            with pytest.raises(TransientFault):
                await delivered(client.fetch(FetchRequest("6")))


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 Other", "307 Temporary", "308 Permanent"])
async def test_each_kind_of_redirect_is_followed_within_the_origin(connect: Connect, status: str) -> None:
    asked: list[bytes] = []

    async def lead_on(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        asked.append(head)
        there = f"Location: http://127.0.0.1:{port}/a b?c=%20"
        writer.write(
            http(b"moved", there, "Content-Length: 5", status=status)
            if len(asked) == 1
            else http(b"{}", "Content-Length: 2")
        )

    async with serving(lead_on) as port, connect(f"http://127.0.0.1:{port}/{{order_id}}", LIMITS, TOKEN) as client:
        body = (await delivered(client.fetch(FetchRequest(ORDER)))).body

    assert body == b"{}"
    assert asked[1].startswith(b"GET /a%20b?c=%20 HTTP/1.1\r\n")
    assert TOKEN.encode() in asked[1]


async def test_a_redirect_to_another_port_or_name_is_refused_and_nothing_is_sent_there(connect: Connect) -> None:
    async with answering(http(b"{}", "Content-Length: 2")) as (there, asked_there):
        for elsewhere in (there, there.replace("127.0.0.1", "localhost"), there.replace("http:", "")):
            location = f"Location: {elsewhere.replace('{order_id}', 'x?key=s3cr3t')}"
            moved = http(b"", location, "Content-Length: 0", status="302 Found")
            async with answering(moved) as (template, _), connect(template, LIMITS, TOKEN) as client:
                with pytest.raises(
                    TransientFault, match="HTTP 302: the redirect is not followed: it leads to another origin"
                ) as fault:
                    await delivered(client.fetch(FetchRequest(ORDER)))
            assert "s3cr3t" not in str(fault.value)

    assert asked_there == []


@pytest.mark.each_client
async def test_a_redirect_from_https_to_http_is_refused(connect: Connect, server_tls: ssl.SSLContext) -> None:
    async with answering(http(b"{}", "Content-Length: 2")) as (there, asked_there):
        plain = f"Location: {there.replace('127.0.0.1', 'localhost').replace('{order_id}', 'x')}"

        async def downgrade(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
            writer.write(http(b"", plain, "Content-Length: 0", status="302 Found"))

        async with (
            serving(downgrade, server_tls) as port,
            connect(f"https://localhost:{port}/{{order_id}}", LIMITS, TOKEN) as client,
        ):
            with pytest.raises(TransientFault, match="leads to another origin, http://localhost:"):
                await delivered(client.fetch(FetchRequest(ORDER)))

    assert asked_there == []


@asynccontextmanager
async def other_protocol() -> AsyncIterator[tuple[int, list[None]]]:
    """A port, and an element for each connection to it."""
    connections: list[None] = []

    async def greet(reader: StreamReader, writer: StreamWriter) -> None:
        connections.append(None)
        writer.write(b"220 ready\r\n")
        await reader.read()

    async with listening(greet) as port:
        yield port, connections


@pytest.mark.parametrize("scheme", ["ftp", "gopher", "dict", "telnet", "file"])
async def test_a_redirect_to_another_protocol_opens_no_connection(connect: Connect, scheme: str) -> None:
    async with other_protocol() as (port, connections):
        moved = http(b"", f"Location: {scheme}://127.0.0.1:{port}/x", "Content-Length: 0", status="302 Found")
        async with answering(moved) as (template, _), connect(template) as client:
            with pytest.raises(TransientFault, match="does not lead to an HTTP URL"):
                await delivered(client.fetch(FetchRequest(ORDER)))

    assert connections == []


@pytest.mark.each_client
@pytest.mark.parametrize("scheme", ["ftp", "gopher", "dict", "telnet"])
async def test_a_transport_speaks_http_only(kind: Kind, scheme: str) -> None:
    async with (
        other_protocol() as (port, connections),
        transport_opener(kind)(Options(LIMITS, False, None)) as transport,
    ):
        with pytest.raises(NoResponse):
            await transport.send(f"{scheme}://127.0.0.1:{port}/x", {})

    assert connections == []


@pytest.mark.each_client
async def test_a_transport_follows_no_redirect(kind: Kind) -> None:
    moved = http(b"", "Location: /orders/y", "Content-Length: 0", status="302 Found")

    async with (
        answering(moved) as (template, asked),
        transport_opener(kind)(Options(LIMITS, False, None)) as transport,
    ):
        with pytest.raises(NoDocument) as declined:
            await transport.send(template.replace("{order_id}", "x"), {})

    assert (declined.value.status, declined.value.headers["Location"]) == (302, "/orders/y")
    assert len(asked) == 1


async def test_a_redirect_without_a_location_is_treated_like_a_5xx(connect: Connect) -> None:
    async with (
        answering(http(b"", "Content-Length: 0", status="302 Found")) as (template, _),
        connect(template) as client,
    ):
        with pytest.raises(TransientFault, match="HTTP 302") as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert fault.value.retry_reason is RetryReason.HTTP_STATUS


@pytest.mark.parametrize("body", [b"x" * 5_000, b"x" * 10])
async def test_the_status_decides_and_not_its_body(connect: Connect, body: bytes) -> None:
    # Over the limit of a document, or broken off: either would mean something else without the status.
    gone = http(body, "Content-Length: 5000", status="410 Gone")

    async with answering(gone) as (template, _), connect(template, replace(LIMITS, body=1_000)) as client:
        with pytest.raises(PermanentFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert fault.value.reason is DeadReason.NOT_FOUND


@pytest.mark.parametrize(
    "answer",
    [
        b"nonsense\r\n\r\n",
        http(b"\xff\xff\xff\xff", "Content-Encoding: deflate", "Content-Length: 4"),
        http(b"", "Location: ?", "Content-Length: 0", status="302 Found"),
        http(b"", "Location: ftp://x/?key=s3cr3t", "Content-Length: 0", status="302 Found"),
        http(b"", "Location: http://[?key=s3cr3t", "Content-Length: 0", status="302 Found"),
        http(b"", "Content-Length: 0", status="500 Oh"),
    ],
)
async def test_no_fault_contains_a_key_from_the_url(connect: Connect, answer: bytes) -> None:
    async with (
        answering(answer) as (template, _),
        connect(template.replace("http://", "http://user:s3cr3t@") + "?key=s3cr3t") as client,
    ):
        with pytest.raises(TransientFault) as fault:
            await delivered(client.fetch(FetchRequest(ORDER)))

    assert "s3cr3t" not in str(fault.value)
