"""The HTTP server under the routes, over raw sockets: limits, slow and idle clients, TLS, the stop."""

import asyncio
import json
import re
import ssl
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import aiohttp
import pytest
import trustme
from http_api import Api, Serve
from redis.asyncio import Redis
from support import eventually

from ingest.flow.shutdown import Shutdown
from ingest.lab.session import allow_open_files
from ingest.queue.layout.keys import Keys

HEAD = b"POST /v1/orders HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"


async def ask(api: Api, *pieces: bytes) -> tuple[int, bytes]:
    """The response to these bytes before the connection ends, as the first status and the whole text."""
    async with api.connection() as (reader, writer):
        for piece in pieces:
            writer.write(piece)
        answered = await reader.read()
    return int(answered.split(b" ", 2)[1]), answered


def problem_in(answered: bytes) -> dict[str, object]:
    return dict(json.loads(answered.partition(b"\r\n\r\n")[2]))


async def test_a_header_that_does_not_come_is_answered_and_closed(serve: Serve) -> None:
    async with serve(api_header_timeout=0.2) as api:
        status, answered = await ask(api, HEAD)

    assert (status, problem_in(answered)["code"]) == (408, "header_too_slow")


async def test_a_header_that_trickles_is_too_slow_all_the_same(serve: Serve) -> None:
    async with serve(api_header_timeout=0.3) as api, api.connection() as (reader, writer):

        async def trickle() -> None:
            with suppress(ConnectionError):
                for byte in HEAD * 10:
                    writer.write(bytes([byte]))
                    await writer.drain()
                    await asyncio.sleep(0.02)

        trickling = asyncio.create_task(trickle())
        answered = await reader.readline()
        trickling.cancel()

    assert answered.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_does_not_come_is_answered_and_closed(serve: Serve) -> None:
    async with serve(api_header_timeout=0.3, api_body_timeout=0.6) as api:
        whole = await ask(api, HEAD + b"Content-Length: 100\r\n\r\n{")
        ndjson = await ask(api, HEAD.replace(b"json", b"x-ndjson") + b"Content-Length: 100\r\n\r\n1\n")

    assert (whole[0], problem_in(whole[1])["code"]) == (408, "body_too_slow")
    assert (ndjson[0], problem_in(ndjson[1])["accepted"]) == (408, 0)


@pytest.mark.parametrize("kind", [b"json", b"x-ndjson"])
async def test_a_malformed_chunk_is_answered_once_and_not_logged(
    serve: Serve, capsys: pytest.CaptureFixture[str], kind: bytes
) -> None:
    head = HEAD.replace(b"json", kind) + b"Expect: 100-continue\r\nTransfer-Encoding: chunked\r\n\r\n"
    async with serve(api_body_timeout=1) as api, api.connection() as (reader, writer):
        writer.write(head)
        # Now its handler reads the body.
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"2\r\n1\n\r\nZZ\r\n" + b"x" * 1000)
        answered = await reader.read()

    # aiohttp waits for the rest of such a body, which never comes.
    assert answered.startswith(b"HTTP/1.1 408 ")
    assert answered.count(b"HTTP/1.1") == 1
    assert b"Connection: close" in answered
    assert problem_in(answered)["code"] == "body_too_slow"
    assert problem_in(answered).get("accepted") == (0 if kind == b"x-ndjson" else None)
    output = capsys.readouterr()
    assert "exception" not in (output.out + output.err).lower()


async def test_a_malformed_chunk_behind_other_requests_is_answered_after_them(serve: Serve) -> None:
    health = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
    begun = HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n[]\r\n"
    async with serve(api_body_timeout=1) as api, AsyncExitStack() as stack:
        connections = [await stack.enter_async_context(api.connection()) for _ in range(20)]
        for number, (_, writer) in enumerate(connections):
            writer.write(health * 3 + begun)
            # The server is in the middle of any of them when the rest comes.
            for _ in range(number):
                await asyncio.sleep(0)
            writer.write(b"ZZ\r\n")
        answered = await asyncio.gather(*(reader.read() for reader, _ in connections))

    for answers in answered:
        statuses = re.findall(rb"HTTP/1\.[01] (\d+) ", answers)
        assert statuses[-1] in {b"400", b"408"}
        assert set(statuses[:-1]) <= {b"200"}


@pytest.mark.parametrize("kind", [b"json", b"x-ndjson"])
async def test_a_client_that_goes_in_the_middle_of_its_body_is_not_logged(
    serve: Serve, queue_name: str, redis: Redis, capsys: pytest.CaptureFixture[str], kind: bytes
) -> None:
    head = HEAD.replace(b"json", kind) + b"Expect: 100-continue\r\nContent-Length: 1000\r\n\r\n"
    async with serve() as api, api.connection() as (reader, writer):
        writer.write(head)
        # Now its handler reads the body.
        assert await reader.readline() == b"HTTP/1.1 100 Continue\r\n"
        writer.write(b"1\n2\n3")
        writer.transport.abort()
        async with api.http.get(api.url + "/healthz") as answer:
            assert answer.status == 200

    assert await redis.xlen(Keys.of(queue_name).stream) == 0
    output = capsys.readouterr()
    assert "request_failed" not in output.out + output.err


async def test_a_connection_on_which_nothing_comes_is_closed(serve: Serve) -> None:
    async with serve(api_idle_timeout=0.2) as api, api.connection() as (reader, _):
        assert await reader.read() == b""


async def test_a_header_that_is_too_large_is_refused_however_it_comes(serve: Serve) -> None:
    async with serve() as api:
        at_once = await ask(api, HEAD + b"X-A: " + b"a" * 10_000 + b"\r\n\r\n")
        many = await ask(api, HEAD + b"".join(b"X-%d: a\r\n" % number for number in range(100)) + b"\r\n")
        path = await ask(api, b"GET /v1/orders/" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n")
        in_pieces = await trickled(api, HEAD, *(b"X-%d: " % number + b"a" * 1000 + b"\r\n" for number in range(50)))

    assert [at_once[0], many[0], path[0]] == [400, 400, 400]
    assert in_pieces.startswith(b"HTTP/1.1 431 ")


async def test_the_first_pieces_of_a_body_are_no_part_of_its_header(serve: Serve) -> None:
    body = b'{"order_ids":[%s]}' % b",".join(b'"order-%d"' % number for number in range(9_000))
    head = HEAD + b"Content-Length: %d\r\n\r\n" % len(body)
    async with serve() as api, api.connection() as (reader, writer):
        writer.write(head[:-3])
        await asyncio.sleep(0)
        # Together, so that the body comes before the request has begun.
        writer.write(head[-3:] + body)

        assert await reader.readline() == b"HTTP/1.1 202 Accepted\r\n"


async def trickled(api: Api, *pieces: bytes) -> bytes:
    """The first line of the answer to these pieces, each sent when the one before has been read."""
    async with api.connection() as (reader, writer):
        answered = asyncio.create_task(reader.readline())
        with suppress(ConnectionError):
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.wait([answered], timeout=0.01)
                if answered.done():
                    break
        return await answered


async def test_idle_connections_make_room_for_new_ones(serve: Serve) -> None:
    async with serve(api_connections=20) as api, AsyncExitStack() as stack:
        idle = [await stack.enter_async_context(api.connection()) for _ in range(60)]
        for _ in range(5):
            async with api.http.get(api.url + "/healthz") as answer:
                assert answer.status == 200

        async def closed() -> int:
            return sum(reader.at_eof() for reader, _ in idle)

        await eventually(closed)
        assert await closed() >= 40


async def test_busy_connections_do_not_hide_the_idle_ones(serve: Serve) -> None:
    allow_open_files()
    async with serve(api_connections=1_500) as api, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(api.connection()) for _ in range(1_500)]
        for _, writer in clients[:1_100]:
            writer.write(HEAD)
        await asyncio.sleep(0.1)

        statuses = [(await ask(api, b"GET /healthz HTTP/1.0\r\nHost: x\r\n\r\n"))[0] for _ in range(20)]

    assert statuses.count(200) >= 19, "the search for the first one may find only busy connections"


async def test_busy_connections_are_kept_and_more_are_refused(serve: Serve) -> None:
    async with serve(api_connections=5) as api, AsyncExitStack() as stack:
        # Callers that are not known yet, because a key can use half of the connections.
        head = b"POST /console/login HTTP/1.1\r\nHost: x\r\nSec-Fetch-Site: same-origin\r\n"
        busy = [await stack.enter_async_context(api.connection()) for _ in range(5)]
        for _, writer in busy:
            writer.write(head + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 20\r\n\r\nk")
            await writer.drain()
        await asyncio.sleep(0.1)

        status, answered = await ask(api, b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")

        assert (status, problem_in(answered)["code"]) == (503, "busy")
        assert b"Retry-After: 1" in answered
        for reader, writer in busy:
            writer.write(b"ey=1234567890123456")
            assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 404")


async def test_bodies_together_take_no_more_memory_than_they_may(serve: Serve) -> None:
    size = 256 * 1024
    limits = {"api_body_limit": size, "api_body_memory": 4 * size}
    async with serve(**limits) as api, AsyncExitStack() as stack:
        statuses = []
        clients = [await stack.enter_async_context(api.connection()) for _ in range(12)]

        async def send(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(HEAD + b"Content-Length: %d\r\n\r\n" % size)
            writer.write(b" " * (size - 1))
            statuses.append(int((await reader.readuntil(b"\r\n")).split()[1]))

        sending = [asyncio.create_task(send(*client)) for client in clients]
        await asyncio.wait(sending, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        async with api.http.get(api.url + "/healthz") as answer:
            healthy = answer.status
        for task in sending:
            task.cancel()

    assert set(statuses) == {503}
    assert healthy == 200


async def test_a_body_without_a_length_is_rejected_when_it_exceeds_the_limit(serve: Serve) -> None:
    head = HEAD + b"Transfer-Encoding: chunked\r\n"
    chunk = b"400\r\n" + b" " * 1024 + b"\r\n"
    async with serve(api_body_limit=8 * 1024) as api:
        whole, _ = await ask(api, head + b"Connection: close\r\n\r\n" + chunk * 9 + b"0\r\n\r\n")
        async with api.connection() as (reader, writer):
            writer.write(head + b"Expect: 100-continue\r\n\r\n")
            await reader.readuntil(b"\r\n\r\n")
            # Now its handler reads the body.
            writer.write(chunk * 9 + b"0\r\n\r\n")
            answered = await reader.readuntil(b"\r\n")

    assert whole == 413
    assert answered.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize("path", ["/healthz", "/nothing", "/v1/orders"])
async def test_every_answer_has_security_headers_and_names_no_product(serve: Serve, path: str) -> None:
    async with serve() as api, api.http.get(api.url + path) as answer:
        headers = answer.headers

    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Content-Security-Policy"].startswith("default-src 'none'")
    assert headers["X-Request-Id"]
    assert "Server" not in headers
    assert "Access-Control-Allow-Origin" not in headers


async def test_the_answer_to_a_post_is_whole_in_each_version_of_http(serve: Serve) -> None:
    body = b'{"order_ids":["1"]}'
    request = b"Content-Length: %d\r\n\r\n" % len(body) + body
    async with serve(api_idle_timeout=0.3) as api:
        kept = await ask(api, HEAD + request + HEAD + request)
        closed = await ask(api, HEAD + b"Connection: close\r\n" + request)
        old = await ask(api, HEAD.replace(b"/1.1", b"/1.0") + request)
        # HTTP/1.0 does not support interim responses, so its expectation is ignored.
        expecting = await ask(api, HEAD.replace(b"/1.1", b"/1.0") + b"Expect: 100-continue\r\n" + request)

    assert [answered.count(b"HTTP/1.") for _, answered in (kept, closed, old, expecting)] == [2, 1, 1, 1]
    for status, answered in (kept, closed, old, expecting):
        head, _, _ = answered.partition(b"\r\n\r\n")
        assert status == 202
        assert answered.endswith(b'\r\n\r\n{"accepted":1,"duplicates":0}')
        for name in (b"Date", b"Content-Length", b"X-Request-Id", b"X-Content-Type-Options", b"Content-Type"):
            assert head.count(b"\r\n" + name + b": ") == 1
        assert b"Server" not in head
    assert b"Connection: close" in closed[1]


async def test_a_sane_request_id_is_kept_and_any_other_replaced(serve: Serve) -> None:
    async with serve() as api:
        for given, is_kept in (("abc-1", True), ("a b", False), ("x" * 65, False)):
            async with api.http.get(api.url + "/healthz", headers={"X-Request-Id": given}) as answer:
                assert (answer.headers["X-Request-Id"] == given) is is_kept


# -- the stop -------------------------------------------------------------------------------------------------


async def test_a_stop_finishes_a_body_that_is_still_coming_and_closes_idle_connections(
    serve: Serve, queue_name: str, redis: Redis
) -> None:
    shutdown = Shutdown(30.0)
    async with serve(shutdown=shutdown) as api:
        idle, idle_writer = await asyncio.open_connection("127.0.0.1", api.port)
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)
        writer.write(HEAD + b"Content-Length: 20\r\n\r\n{")
        await asyncio.sleep(0.1)
        shutdown.request("test")
        shutdown.overdue.clear()

        async def finish() -> bytes:
            assert await idle.read() == b""
            writer.write(b'"order_ids": ["1"]}'[:19])
            return await reader.read()

        finishing = asyncio.create_task(finish())
        # The end of the block stops the server, which waits for the request.
        api_url = api.url
        shutdown.overdue.set = lambda: None  # type: ignore[method-assign]
    answered = await finishing
    for stream in (writer, idle_writer):
        stream.close()

    assert answered.startswith(b"HTTP/1.1 202 ")
    assert b"Connection: close" in answered
    assert await redis.xlen(Keys.of(queue_name).stream) == 1
    with pytest.raises(aiohttp.ClientConnectorError):
        async with aiohttp.ClientSession() as http:
            await http.get(api_url)


async def test_a_stop_responds_to_the_first_request_of_a_client_that_has_just_connected(serve: Serve) -> None:
    shutdown = Shutdown(30.0)
    async with serve(shutdown=shutdown) as api:
        reader, writer = await asyncio.open_connection("127.0.0.1", api.port)

        async def request() -> bytes:
            # Until it accepts no more.
            with suppress(OSError):
                while True:
                    _, further = await asyncio.open_connection("127.0.0.1", api.port)
                    further.close()
            await asyncio.sleep(0.1)
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            return await reader.read()

        responding = asyncio.create_task(request())
        shutdown.request("test")
        shutdown.overdue.clear()
        shutdown.overdue.set = lambda: None  # type: ignore[method-assign]
    response = await responding
    writer.close()

    assert response.startswith(b"HTTP/1.1 200 ")
    assert b"Connection: close" in response


# -- TLS ------------------------------------------------------------------------------------------------------


def write_certificate(authority: trustme.CA, folder: Path, organization: str) -> None:
    issued = authority.issue_cert("127.0.0.1", organization_name=organization)
    issued.private_key_pem.write_to_path(str(folder / "key.pem"))
    (folder / "cert.pem").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))


async def test_https_is_served_and_a_new_certificate_is_used_without_a_restart(serve: Serve, tmp_path: Path) -> None:
    authority = trustme.CA()
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    write_certificate(authority, tmp_path, "first")
    files = {"api_cert_file": str(tmp_path / "cert.pem"), "api_key_file": str(tmp_path / "key.pem")}

    async with serve(**files) as api:

        async def organization() -> str:
            reader, writer = await asyncio.open_connection("127.0.0.1", api.port, ssl=trusting)
            certificate = writer.get_extra_info("peercert")
            writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            writer.close()
            await writer.wait_closed()
            return str(dict(pair for part in certificate["subject"] for pair in part)["organizationName"])

        assert await organization() == "first"
        (tmp_path / "cert.pem").write_bytes(b"broken")
        assert await organization() == "first"
        write_certificate(authority, tmp_path, "second")

        async def is_second() -> bool:
            return await organization() == "second"

        await eventually(is_second)
