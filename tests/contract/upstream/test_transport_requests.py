"""The transport port: any method, headers and body, and the headers of responses."""

import asyncio
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from raw_http import LIMITS, answering, http, serving

from ingest.upstream.client import transport_opener
from ingest.upstream.http.transport import Kind, NoDocument, Options, Transport

pytestmark = pytest.mark.each_client


@asynccontextmanager
async def opened(kind: Kind) -> AsyncIterator[Transport]:
    async with transport_opener(kind)(Options(LIMITS, False, None)) as transport:
        yield transport


@asynccontextmanager
async def echoing() -> AsyncIterator[tuple[str, list[tuple[bytes, bytes]]]]:
    """A server that records the head and the body of each request, with its URL."""
    received: list[tuple[bytes, bytes]] = []

    async def note(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        (length, *_) = [
            int(line[15:]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")
        ] or [0]
        received.append((head, await reader.readexactly(length)))
        writer.write(http(b"{}", "Content-Length: 2"))

    async with serving(note) as port:
        yield f"http://127.0.0.1:{port}/", received


async def test_a_post_sends_its_body_and_the_headers_of_the_request(kind: Kind) -> None:
    headers = {"Content-Type": "application/json", "X-Key": "k1"}

    async with echoing() as (url, received), opened(kind) as transport:
        document = await transport.send(url, headers, "POST", b'{"id":"1"}')

    ((head, body),) = received
    assert document == b"{}"
    assert head.startswith(b"POST / HTTP/1.1\r\n")
    assert b"\r\nContent-Type: application/json\r\n" in head
    assert b"\r\nX-Key: k1\r\n" in head
    assert b"expect" not in head.lower()
    assert body == b'{"id":"1"}'


@pytest.mark.parametrize("body", [None, b"", b"\0\xff" * 100_000])
async def test_a_body_may_be_empty_large_and_binary(kind: Kind, body: bytes | None) -> None:
    async with echoing() as (url, received), opened(kind) as transport:
        await transport.send(url, {"Content-Type": "text/plain"}, "POST", body)

    assert received[0][1] == (body or b"")


async def test_methods_and_headers_of_one_request_are_not_those_of_the_next(kind: Kind) -> None:
    first, second = {"X-Key": "k1", "Content-Type": "text/plain"}, {"X-Other": "k2"}

    async with echoing() as (url, received), opened(kind) as transport:
        await transport.send(url, first, "POST", b"body")
        await transport.send(url, second)
        await transport.send(url, first, "POST", b"longer body")
        await transport.send(url, second)

    assert [(head.split(b" ")[0], body) for head, body in received] == [
        (b"POST", b"body"),
        (b"GET", b""),
        (b"POST", b"longer body"),
        (b"GET", b""),
    ]
    assert [b"X-Key: k1" in head for head, _ in received] == [True, False, True, False]
    assert [b"X-Other: k2" in head for head, _ in received] == [False, True, False, True]
    assert b"Content-Type" not in received[1][0] + received[3][0]


async def test_concurrent_requests_keep_their_own_headers(kind: Kind) -> None:
    async with echoing() as (url, received), opened(kind) as transport:
        await asyncio.gather(*(transport.send(f"{url}{n}", {"X-Key": f"k{n}"}) for n in range(30)))

    assert len(received) == 30
    assert all(head.split(b" ")[1][1:] == head.split(b"X-Key: k")[1].split(b"\r\n")[0] for head, _ in received)


async def test_the_headers_of_a_document_are_available_under_any_case(kind: Kind) -> None:
    answer = http(b"{}", "ratelimit: a", "X-Request-ID: 7", "Content-Length: 2")
    received: list[Mapping[str, str]] = []

    async with answering(answer) as (template, _), opened(kind) as transport:
        document = await transport.send(template, {}, on_head=lambda _, headers: received.append(headers))

    assert document == b"{}"
    assert [(headers["RateLimit"], headers["x-request-id"]) for headers in received] == [("a", "7")]


async def test_a_response_without_a_document_has_all_its_headers_and_calls_nobody(kind: Kind) -> None:
    answer = http(
        b"", "ratelimit: first", "RATELIMIT: second", "X-RateLimit-Remaining: 0", "Content-Length: 0", status="429 Slow"
    )
    received: list[Mapping[str, str]] = []

    async with answering(answer) as (template, _), opened(kind) as transport:
        with pytest.raises(NoDocument) as declined:
            await transport.send(template, {}, on_head=lambda _, headers: received.append(headers))

    headers = declined.value.headers
    assert (headers["RateLimit"], headers["x-ratelimit-remaining"], headers.get("None")) == ("first", "0", None)
    assert received == []
