"""Servers that violate the order of a connection by unrequested bytes, errors with a body, or an end at the wrong time."""

import asyncio
import socket
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest
from raw_http import LIMITS, http, serving

from ingest.upstream.client import transport_opener
from ingest.upstream.http.transport import Kind, NoDocument, NoResponse, Options, Transport, UpstreamLimits

RIGHT = http(b'{"right":1}', "Content-Length: 11")
WRONG = http(b'{"wrong":1}', "Content-Length: 11")
native_only = pytest.mark.parametrize("kind", ["native"], indirect=True)


@asynccontextmanager
async def opened(kind: Kind, limits: UpstreamLimits = LIMITS) -> AsyncIterator[Transport]:
    async with transport_opener(kind)(Options(limits, False, None)) as transport:
        yield transport


@native_only
@pytest.mark.parametrize("unasked", [WRONG, WRONG[:20], b"x", b"\r\n"], ids=["whole", "part", "byte", "line break"])
async def test_a_response_that_nobody_asked_for_ends_the_connection(kind: Kind, unasked: bytes) -> None:
    """Taken for the response to the next request, it would be another order's document."""
    is_idle, is_closed = asyncio.Event(), asyncio.Event()

    async def write(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(RIGHT)
        if b"/first" in head:
            await is_idle.wait()
            writer.write(unasked)
            with suppress(ConnectionError):
                await reader.read()
            is_closed.set()

    async with serving(write) as port, opened(kind) as transport:
        assert await transport.send(f"http://127.0.0.1:{port}/first", {}) == b'{"right":1}'
        is_idle.set()
        await is_closed.wait()

        assert await transport.send(f"http://127.0.0.1:{port}/second", {}) == b'{"right":1}'


@native_only
async def test_a_response_before_the_request_is_no_document(kind: Kind) -> None:
    async def greet(_: StreamReader, writer: StreamWriter) -> None:
        writer.write(WRONG)
        await asyncio.sleep(0)
        writer.close()

    sockets = [socket.create_server(("127.0.0.1", 0), backlog=5)]
    port = sockets[0].getsockname()[1]

    async with await asyncio.start_server(greet, sock=sockets[0]), opened(kind) as transport:
        outcomes = await asyncio.gather(
            *(transport.send(f"http://127.0.0.1:{port}/", {}) for _ in range(20)), return_exceptions=True
        )

    # Bytes before the request end the connection. Later bytes look like a response.
    assert {type(outcome) for outcome in outcomes} <= {NoResponse, bytes}


async def test_the_body_of_an_error_is_not_the_response_to_the_next_request(kind: Kind) -> None:
    body = b"x" * 20_000

    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        if b"/first" in head:
            writer.write(http(b"", f"Content-Length: {len(body)}", status="404 No"))
            await writer.drain()
            await asyncio.sleep(0)
            writer.write(body)
        else:
            writer.write(RIGHT)

    async with serving(write) as port, opened(kind) as transport:
        for _ in range(3):
            with pytest.raises(NoDocument):
                await transport.send(f"http://127.0.0.1:{port}/first", {})

            assert await transport.send(f"http://127.0.0.1:{port}/second", {}) == b'{"right":1}'


async def test_errors_whose_bodies_do_not_arrive_keep_a_limited_number_of_connections(kind: Kind) -> None:
    """A server that answers as to HEAD: with the length of a body, and without the body."""
    opened_ones: set[StreamWriter] = set()
    most = 0

    async def write(_: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal most
        opened_ones.add(writer)
        most = max(most, len(opened_ones))
        writer.write(http(b"", "Content-Length: 100", status="404 No"))
        with suppress(ConnectionError):
            await reader.read()
        opened_ones.discard(writer)
        writer.close()

    async with serving(write) as port, opened(kind) as transport:
        for _ in range(200):
            with pytest.raises(NoDocument):
                await transport.send(f"http://127.0.0.1:{port}/", {})

    assert most < 100


@pytest.mark.parametrize(
    "status", ["204 No Content", "205 Reset Content", "304 Not Modified"], ids=lambda status: status[:3]
)
async def test_a_body_where_there_is_none_is_not_the_next_response(kind: Kind, status: str) -> None:
    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        if b"/first" in head:
            writer.write(http(WRONG, f"Content-Length: {len(WRONG)}", status=status))
        else:
            writer.write(RIGHT)

    async with serving(write) as port, opened(kind) as transport:
        with pytest.raises((NoDocument, NoResponse)):
            await transport.send(f"http://127.0.0.1:{port}/first", {})

        assert await transport.send(f"http://127.0.0.1:{port}/second", {}) == b'{"right":1}'


async def test_bytes_after_the_last_response_of_a_connection_are_nobodys(kind: Kind) -> None:
    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        if b"/first" in head:
            writer.write(http(b"{}", "Content-Length: 2", "Connection: close"))
            await writer.drain()
            writer.write(WRONG)
            writer.close()
        else:
            writer.write(RIGHT)

    async with serving(write) as port, opened(kind) as transport:
        with suppress(NoResponse):
            assert await transport.send(f"http://127.0.0.1:{port}/first", {}) == b"{}"

        assert await transport.send(f"http://127.0.0.1:{port}/second", {}) == b'{"right":1}'


@pytest.mark.parametrize("answer", [b"", RIGHT[:30]], ids=["before the response", "within it"])
async def test_a_server_that_ends_its_half_of_the_connection_has_answered_nothing(kind: Kind, answer: bytes) -> None:
    async def half_close(_: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        writer.write(answer)
        writer.write_eof()
        await reader.read()
        writer.close()

    async with serving(half_close) as port, opened(kind) as transport:
        with pytest.raises(NoResponse) as failed:
            await transport.send(f"http://127.0.0.1:{port}/", {})

    assert not failed.value.timed_out


@pytest.mark.each_client
async def test_kept_connections_that_the_server_closes_lose_no_request(kind: Kind) -> None:
    """Each connection is closed after its third response, without notice, while a new request may already be on its way."""
    served: dict[StreamWriter, int] = {}

    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        served[writer] = served.get(writer, 0) + 1
        number = head.split(b" ")[1][1:]
        writer.write(http(number, f"Content-Length: {len(number)}"))
        if served[writer] == 3:
            writer.close()

    async def requests(first: int) -> None:
        for number in range(first, first + 12):
            assert await transport.send(f"http://127.0.0.1:{port}/{number}", {}) == b"%d" % number

    async with serving(write) as port, opened(kind) as transport:
        await asyncio.gather(*(requests(100 * worker) for worker in range(20)))


@pytest.mark.parametrize("body", [b"", b"why"], ids=["without a body", "with a body"])
@pytest.mark.parametrize(
    ("status", "is_kept"),
    [*((status, False) for status in (401, 403, 408, 421, 500, 502, 503, 504)), (302, True), (404, True), (429, True)],
)
async def test_the_connection_to_a_server_that_fails_or_refuses_us_is_not_used_again(
    kind: Kind,
    status: int,
    is_kept: bool,  # noqa: FBT001  a parameter of the table
    body: bytes,
) -> None:
    """Behind a load balancer, another connection may lead to another server."""
    used: list[StreamWriter] = []

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        used.append(writer)
        writer.write(RIGHT if len(used) == 2 else http(body, f"Content-Length: {len(body)}", status=f"{status} X"))

    async with serving(write) as port, opened(kind) as transport:
        with pytest.raises(NoDocument):
            await transport.send(f"http://127.0.0.1:{port}/", {})
        assert await transport.send(f"http://127.0.0.1:{port}/", {}) == b'{"right":1}'

    assert (used[0] is used[1]) is is_kept


@pytest.mark.each_client
@native_only
async def test_a_post_on_a_connection_that_was_just_closed_is_not_sent_twice(kind: Kind) -> None:
    received: list[bytes] = []

    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        received.append(head)
        if len(received) == 2:
            writer.close()  # it was received, perhaps without an effect
        else:
            writer.write(RIGHT)

    async with serving(write) as port, opened(kind) as transport:
        await transport.send(f"http://127.0.0.1:{port}/", {})
        with pytest.raises(NoResponse) as failed:
            await transport.send(f"http://127.0.0.1:{port}/", {}, "POST")

    assert failed.value.reached
    assert len(received) == 2


@native_only
async def test_a_connection_on_which_a_request_is_still_being_sent_is_not_used_again(kind: Kind) -> None:
    """A server may answer before it has read a large body. The rest of that body would be the next request's head."""
    used: list[StreamWriter] = []

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        used.append(writer)
        writer.write(RIGHT)
        if len(used) == 1:
            await asyncio.Event().wait()

    async with serving(write) as port, opened(kind) as transport:
        assert await transport.send(f"http://127.0.0.1:{port}/", {}, "POST", b"x" * 20_000_000) == b'{"right":1}'
        assert await transport.send(f"http://127.0.0.1:{port}/", {}) == b'{"right":1}'

    assert used[0] is not used[1]


@pytest.mark.each_client
async def test_five_hundred_requests_at_once_each_get_their_own_response(kind: Kind) -> None:
    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        number = head.split(b" ")[1][1:]
        await asyncio.sleep(0)
        writer.write(http(number, f"Content-Length: {len(number)}"))

    async def requests(first: int) -> None:
        for number in (first, first + 1_000):
            assert await transport.send(f"http://127.0.0.1:{port}/{number}", {}) == b"%d" % number

    async with serving(write) as port, opened(kind) as transport:
        await asyncio.gather(*(requests(number) for number in range(500)))


@pytest.mark.each_client
@native_only
async def test_a_cancelled_request_does_not_end_the_next_one_on_its_connection(kind: Kind) -> None:
    """Cancelled at any turn of the loop, also after its response has arrived and its connection is in use again."""

    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        number = head.split(b" ")[1][1:]
        writer.write(http(number, f"Content-Length: {len(number)}"))

    async with serving(write) as port, opened(kind) as transport:
        for turns in range(12):
            cancelled = asyncio.create_task(transport.send(f"http://127.0.0.1:{port}/cancelled", {}))
            for _ in range(turns):
                await asyncio.sleep(0)
            cancelled.cancel()
            others = [asyncio.create_task(transport.send(f"http://127.0.0.1:{port}/{n}", {})) for n in range(3)]

            assert await asyncio.gather(*others) == [b"0", b"1", b"2"]
            await asyncio.wait([cancelled])


async def test_an_ipv6_address_is_reached(kind: Kind) -> None:
    heads: list[bytes] = []

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        heads.append(await reader.readuntil(b"\r\n\r\n"))
        writer.write(RIGHT)
        writer.close()

    async with await asyncio.start_server(serve, "::1", 0) as server, opened(kind) as transport:
        port = server.sockets[0].getsockname()[1]
        assert await transport.send(f"http://[::1]:{port}/", {}) == b'{"right":1}'

    assert f"Host: [::1]:{port}\r\n".encode() in heads[0]
