"""The HTTP server of /metrics and /healthz, on a real socket."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from ingest.probes.plain_http import Answer, Request, Route, serving_routes


async def hello(request: Request) -> Answer:
    return Answer.text(f"hello {request.accept}")


async def broken(_: Request) -> Answer:
    raise ValueError("a bug")


async def large(_: Request) -> Answer:
    # More than the buffers of a connection take: one with a small buffer to send.
    return Answer(bytes(1024 * 1024))


@asynccontextmanager
async def serving(**routes: Route) -> AsyncIterator[int]:
    listener = socket.create_server(("127.0.0.1", 0))
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    own = {f"/{name}": route for name, route in routes.items()}
    async with serving_routes(listener, {"/hello": hello, "/broken": broken, **own}):
        yield listener.getsockname()[1]


async def asked(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        return await reader.read()
    finally:
        writer.close()


async def test_a_request_is_answered_and_the_connection_ends() -> None:
    async with serving() as port:
        answer = await asked(port, b"GET /hello?x=1 HTTP/1.1\r\nHost: a\r\nACCEPT: text/plain\r\n\r\n")

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert b"Content-Length: 17" in head
    assert b"Connection: close" in head
    assert body == b"hello text/plain\n"


async def test_a_head_request_gets_no_body() -> None:
    async with serving() as port:
        answer = await asked(port, b"HEAD /hello HTTP/1.0\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_head", "status"),
    [
        (b"GET /other HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /hello HTTP/1.1\r\nContent-Length: 1\r\n\r\nx", b"405 Method Not Allowed"),
        (b"GET http://elsewhere/hello HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /hello\r\n\r\n", b"400 Bad Request"),
        (b"GET  /hello HTTP/1.1\r\n\r\n", b"400 Bad Request"),
        (b"GET /hello HTTP/2.0\r\n\r\n", b"400 Bad Request"),
        (b"\x16\x03\x01\x00\xff\r\n\r\n", b"400 Bad Request"),
        (b"GET /hello HTTP/1.1\r\nA: " + b"a" * 100_000, b"431 Request Header Fields Too Large"),
        (b"GET /broken HTTP/1.1\r\n\r\n", b"500 Internal Server Error"),
    ],
)
async def test_what_cannot_be_answered_is_refused_and_others_are_served(request_head: bytes, status: bytes) -> None:
    async with serving() as port:
        answer = await asked(port, request_head)
        after = await asked(port, b"GET /hello HTTP/1.1\r\n\r\n")

    assert answer.startswith(b"HTTP/1.1 " + status)
    assert after.startswith(b"HTTP/1.1 200")


async def test_clients_that_say_nothing_or_leave_do_not_keep_others_out() -> None:
    async with serving() as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        _, gone = await asyncio.open_connection("127.0.0.1", port)
        gone.write(b"GET /hello HT")
        gone.close()

        answer = await asked(port, b"GET /hello HTTP/1.1\r\n\r\n")

        for _, writer in silent:
            writer.close()
    assert answer.startswith(b"HTTP/1.1 200")


async def test_of_more_connections_than_the_limit_those_that_wait_for_their_client_longest_are_closed() -> None:
    async with serving() as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]

        answers = [await asked(port, b"GET /hello HTTP/1.1\r\n\r\n") for _ in range(3)]

        assert all(answer.startswith(b"HTTP/1.1 200") for answer in answers)
        assert await closed(opened[0][0])
        opened[-1][1].write(b"GET /hello HTTP/1.1\r\n\r\n")
        assert (await opened[-1][0].read()).startswith(b"HTTP/1.1 200")
        for _, writer in opened:
            writer.close()


async def test_clients_that_do_not_read_their_answers_do_not_keep_others_out() -> None:
    async with serving(large=large) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port, limit=1) for _ in range(64)]
        for _, writer in opened:
            writer.write(b"GET /large HTTP/1.1\r\n\r\n")
        for reader, _ in opened:
            await reader.readexactly(1)

        answer = await asked(port, b"GET /hello HTTP/1.1\r\n\r\n")

        for _, writer in opened:
            writer.close()
    assert answer.startswith(b"HTTP/1.1 200")


async def test_no_connection_is_closed_while_its_answer_is_being_made() -> None:
    making, made = asyncio.Semaphore(0), asyncio.Event()

    async def later(_: Request) -> Answer:
        making.release()
        await made.wait()
        return Answer.text("done")

    async with serving(later=later) as port:
        opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(64)]
        for _, writer in opened:
            writer.write(b"GET /later HTTP/1.1\r\n\r\n")
        for _ in opened:
            await making.acquire()

        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await closed(reader), "there is no room"
        writer.close()
        made.set()

        for other, writer in opened:
            assert (await other.read()).startswith(b"HTTP/1.1 200")
            writer.close()


async def test_what_follows_a_request_is_not_taken_for_another() -> None:
    async with serving() as port:
        answer = await asked(port, b"GET /hello HTTP/1.1\r\n\r\nGET /hello HTTP/1.1\r\n\r\n")

    assert answer.count(b"HTTP/1.1 200") == 1


async def test_it_ends_while_a_client_says_nothing() -> None:
    async with asyncio.timeout(30):
        async with serving() as port:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"GET /hel")
            await asked(port, b"GET /hello HTTP/1.1\r\n\r\n")

        assert await closed(reader)
        writer.close()


async def closed(reader: asyncio.StreamReader) -> bool:
    try:
        return not await reader.read()
    except ConnectionError:
        return True
