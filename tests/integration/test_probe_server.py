"""The HTTP server of /metrics and /healthz, on a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ingest.probes.server import Response, Route, serving_routes


async def hello(accept: str) -> Response:
    return Response(f"hello {accept}\n".encode())


async def broken(_: str) -> Response:
    raise ValueError("a bug")


async def large(_: str) -> Response:
    # Larger than the buffers of a connection with a small buffer to send.
    return Response(bytes(1024 * 1024))


@asynccontextmanager
async def serving(**routes: Route) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    own = {f"/{name}": route for name, route in routes.items()}
    async with serving_routes(listener, {"/hello": hello, "/broken": broken, **own}):
        yield listener.getsockname()[1]


async def response_to(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


async def test_a_response_has_its_length_and_ends_the_connection() -> None:
    async with serving() as port:
        response = await response_to(port, b"GET /hello?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain\r\n\r\n")

    head, _, body = response.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"Content-Length: 17" in head
    assert b"Python" not in head
    assert body == b"hello text/plain\n"


async def test_a_head_request_gets_no_body() -> None:
    async with serving() as port:
        response = await response_to(port, b"HEAD /hello HTTP/1.0\r\n\r\n")

    assert response.startswith(b"HTTP/1.0 200 OK\r\n")
    assert response.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /hello HTTP/1.1\r\n\r\n", b"501 Unsupported method ('POST')"),
        (b"GET  HTTP/1.1 /hello HTTP/1.1\r\n\r\n", b"400 Bad request"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"500 Internal Server Error"),
    ],
)
async def test_a_request_that_fails_does_not_affect_others(request_head: bytes, status: bytes) -> None:
    async with serving() as port:
        response = await response_to(port, request_head)
        after = await response_to(port, b"GET /hello HTTP/1.1\r\n\r\n")

    assert response.startswith(b"HTTP/1.0 " + status)
    assert after.startswith(b"HTTP/1.0 200")


async def test_above_the_limit_the_oldest_connections_that_wait_for_their_client_are_closed() -> None:
    async with serving() as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]

        responses = [await response_to(port, b"GET /hello HTTP/1.1\r\n\r\n") for _ in range(3)]

        assert all(response.startswith(b"HTTP/1.0 200") for response in responses)
        assert await closed(opened[0][0])
        opened[-1][1].write(b"GET /hello HTTP/1.1\r\n\r\n")
        assert (await opened[-1][0].read()).startswith(b"HTTP/1.0 200")
        for _, writer in opened:
            writer.close()


async def test_clients_that_do_not_read_their_responses_do_not_block_others() -> None:
    async with serving(large=large) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(64)]
        for _, writer in opened:
            writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        for reader, _ in opened:
            await reader.readexactly(1)

        response = await response_to(port, b"GET /hello HTTP/1.1\r\n\r\n")

        for _, writer in opened:
            writer.close()
    assert response.startswith(b"HTTP/1.0 200")


async def test_no_connection_is_closed_while_its_response_is_created() -> None:
    creating, created = asyncio.Semaphore(0), asyncio.Event()

    async def later(_: str) -> Response:
        creating.release()
        await created.wait()
        return Response(b"done\n")

    async with serving(later=later) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]
        for _, writer in opened:
            writer.write(b"GET /later HTTP/1.1\r\n\r\n")
        for _ in opened:
            await creating.acquire()

        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await closed(reader), "all connections are in use"
        writer.close()
        created.set()

        for other, writer in opened:
            assert (await other.read()).startswith(b"HTTP/1.0 200")
            writer.close()


async def test_it_ends_while_a_client_is_idle_and_a_response_is_created() -> None:
    creating = asyncio.Event()

    async def never(_: str) -> Response:
        creating.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with asyncio.timeout(5):
        async with serving(never=never) as port:
            idle, idle_writer = await asyncio.open_connection("127.0.0.1", port)
            idle_writer.write(b"GET /hel")
            busy, busy_writer = await asyncio.open_connection("127.0.0.1", port)
            busy_writer.write(b"GET /never HTTP/1.1\r\n\r\n")
            await creating.wait()

        for reader, writer in ((idle, idle_writer), (busy, busy_writer)):
            assert await closed(reader)
            writer.close()


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read()
    except ConnectionError:
        return True
