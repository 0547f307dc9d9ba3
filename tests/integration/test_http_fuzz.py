"""Hostile requests over raw sockets: each gets a clear refusal, queues nothing, and is not logged."""

import asyncio
import gzip
import io
import json
import logging
import random
from collections.abc import Iterator
from contextlib import redirect_stderr, suppress

import pytest
import structlog
from http_api import Api, Serve
from redis.asyncio import Redis

from ingest.queue.layout.keys import Keys
from ingest.telemetry.logs import setup_logs

POST = b"POST /v1/orders HTTP/1.1\r\nHost: x\r\n"
JSON = b"Content-Type: application/json\r\n"
HEAD = POST + JSON
VALID = b'{"order_ids":["smuggled"]}'
SECRET = b"ingest_s3cr3t"


def post(body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return HEAD + lines + b"Content-Length: %d\r\n\r\n" % len(body) + body


def get(target: bytes, *headers: bytes) -> bytes:
    return b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n" + b"".join(header + b"\r\n" for header in headers) + b"\r\n"


SMUGGLING = {
    "length and chunks": HEAD + b"Content-Length: 6\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + post(VALID),
    "chunks and length": HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n" + post(VALID),
    "two lengths": HEAD + b"Content-Length: 0\r\nContent-Length: 26\r\n\r\n" + VALID,
    "length with a sign": HEAD + b"Content-Length: +26\r\n\r\n" + VALID,
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n" + VALID,
    "hexadecimal length": HEAD + b"Content-Length: 0x1a\r\n\r\n" + VALID,
    "list of lengths": HEAD + b"Content-Length: 26, 26\r\n\r\n" + VALID,
    "chunked twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n1a\r\n" + VALID + b"\r\n0\r\n\r\n",
    "unknown coding": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n1a\r\n" + VALID + b"\r\n0\r\n\r\n",
    "space before the colon": HEAD + b"Content-Length : 26\r\n\r\n" + VALID,
    "folded header": HEAD + b"X-A: b\r\n Content-Length: 26\r\nX-B: \x00\r\n\r\n" + VALID,
    "bare line feeds": (HEAD + b"Content-Length: 26\r\n\r\n").replace(b"\r\n", b"\n") + VALID,
    "wrong chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n" + VALID + b"\r\n0\r\n\r\n",
    "negative chunk size": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-1a\r\n" + VALID + b"\r\n0\r\n\r\n",
    "chunk longer than its size": HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + VALID + b"\r\n0\r\n\r\n",
}
HEADERS = {
    "no request": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + SECRET + b"\r\n\r\n",
    "no version": b"GET /healthz\r\n\r\n",
    "unknown version": b"GET /healthz HTTP/9.9\r\nHost: x\r\n\r\n",
    "method of another protocol": b"AUTH " + SECRET + b"\r\n\r\n",
    "header with a NUL": get(b"/v1/x", b"X-A: a\x00b"),
    "header without a name": get(b"/v1/x", b": a"),
    "name with a space": get(b"/v1/x", b"X A: a"),
    "expects something else": HEAD + b"Expect: 200-ok\r\nContent-Length: 26\r\n\r\n" + VALID,
    "compressed": post(gzip.compress(b'"' * 10_000_000), b"Content-Encoding: gzip"),
    "two keys": post(VALID, b'Idempotency-Key: "a"', b'Idempotency-Key: "b"'),
    "bytes in the key": post(VALID, b"Idempotency-Key: \xff\xfe"),
    "huge key": post(VALID, b'Idempotency-Key: "' + b"k" * 3000 + b'"'),
}
PATHS = {
    "encoded slash": get(b"/v1%2Forders/1"),
    "parent folders": get(b"/v1/../../../etc/passwd"),
    "encoded parent folders": get(b"/v1/%2e%2e/%2e%2e/etc/passwd"),
    "NUL": get(b"/v1/orders%00"),
    "double slash": get(b"//v1/orders/1"),
    "backslash": get(b"/v1\\orders"),
    "broken encoding": get(b"/v1/%zz"),
    "broken UTF-8": get(b"/v1/%ff%fe"),
    "bytes": get(b"/v1/\xff\xfe"),
    "other host": get(b"http://evil.example/v2"),
    "asterisk": b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n",
    "tunnel": b"CONNECT evil.example:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    "100 KB": get(b"/v1/orders/" + b"a" * 100_000),
    "upgrade": get(b"/v1/x", b"Connection: Upgrade", b"Upgrade: websocket"),
}
BODIES = {
    "deep lists": post(b"[" * 100_000),
    "deep in the right place": post(b'{"order_ids":' + b"[" * 100_000),
    "deep objects": post(b'{"a":' * 100_000),
    "broken UTF-8": post(b'{"order_ids":["\xff\xfe"]}'),
    "lone surrogate": post(b'{"order_ids":["\\ud800"]}'),
    "NUL": post(b'{"order_ids":["a\\u0000b"]}'),
    "100 KB ID": post(b'{"order_ids":["' + b"a" * 100_000 + b'"]}'),
    "number": post(b'{"order_ids":[1]}'),
    "null": post(b"null"),
    "huge number": post(b'{"order_ids":' + b"9" * 10_000 + b"}"),
    "not a number": post(b'{"order_ids":[NaN]}'),
    "same member twice": post(b'{"order_ids":[" a "],"order_ids":[" a "]}'),
    "two documents": post(VALID + VALID),
    "empty": post(b""),
    "byte order mark": post(b"\xef\xbb\xbf" + VALID),
    "UTF-16": post(VALID.decode().encode("utf-16")),
    "multipart": POST + b"Content-Type: multipart/form-data; boundary=x\r\nContent-Length: 5\r\n\r\n--x--",
    "form": POST + b"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 11\r\n\r\norder_ids=1",
    "no type": POST + b"Content-Length: 26\r\n\r\n" + VALID,
    "strange type": POST + b"Content-Type: application/json/xml;;;=\r\nContent-Length: 26\r\n\r\n" + VALID,
}
# Short ones, as each connection is read until the server closes it.
LIMITS = {"api_idle_timeout": 0.5, "api_header_timeout": 0.5, "api_body_timeout": 0.5}
ALL = {f"{kind}: {name}": request for kind, requests in (
    ("smuggling", SMUGGLING), ("header", HEADERS), ("path", PATHS), ("body", BODIES)
) for name, request in requests.items()}  # fmt: skip


async def answers_to(api: Api, request: bytes) -> bytes:
    """Everything that is answered before the server closes the connection."""
    answered = bytearray()
    async with api.connection() as (reader, writer):
        writer.write(request)
        with suppress(ConnectionError):
            while piece := await reader.read(65_536):
                answered += piece
    return bytes(answered)


def assert_refused(name: str, answered: bytes) -> None:
    assert answered.startswith(b"HTTP/"), f"{name}: {answered[:80]!r}"
    head, _, body = answered.partition(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    assert 400 <= status < 500, f"{name}: {answered[:300]!r}"
    if status != 405 or body:
        problem, _ = json.JSONDecoder().raw_decode(body.decode())
        assert problem["status"] == status, name
        assert problem["code"], name
    assert b"Traceback" not in answered, name
    assert b"aiohttp" not in answered, name
    assert SECRET not in answered, name


@pytest.fixture
def logged() -> Iterator[io.StringIO]:
    """The log events of the block. Afterwards, logs are as other tests expect them."""
    output, root = io.StringIO(), logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with redirect_stderr(output):
        setup_logs("json", "info")
        yield output
    structlog.reset_defaults()
    root.handlers[:] = handlers
    root.setLevel(level)


async def test_hostile_requests_are_refused_queue_nothing_and_are_not_logged(
    serve: Serve, queue_name: str, redis: Redis, logged: io.StringIO
) -> None:
    async with serve(**LIMITS) as api:
        answered = await asyncio.gather(*(answers_to(api, request) for request in ALL.values()))
        async with api.http.get(api.url + "/healthz") as answer:
            assert answer.status == 200

    for name, answers in zip(ALL, answered, strict=True):
        assert_refused(name, answers)
    assert [fields[b"order_id"] for _, fields in await redis.xrange(Keys.of(queue_name).stream)] == []
    assert logged.getvalue() == ""


async def test_requests_with_random_damage_never_fail_the_server(
    serve: Serve, queue_name: str, redis: Redis, logged: io.StringIO
) -> None:
    chance = random.Random(13)
    good = [post(b'{"order_ids":[" a "]}'), get(b"/v1/nothing"), post(b"x", b'Idempotency-Key: "k"')]
    async with serve(**LIMITS) as api:

        async def damaged() -> None:
            request = bytearray(chance.choice(good))
            for _ in range(chance.randint(1, 8)):
                at = chance.randrange(len(request) + 1)
                request[at : at + chance.randint(0, 10)] = chance.randbytes(chance.randint(0, 10))
            answered = await answers_to(api, bytes(request) or b"\x00")
            assert not answered or 400 <= int(answered.split(b" ", 2)[1]) < 500, (bytes(request), answered[:200])

        for _ in range(20):
            await asyncio.gather(*(damaged() for _ in range(20)))

    assert await redis.xlen(Keys.of(queue_name).stream) == 0
    assert logged.getvalue() == ""
