"""Servers that break HTTP, by mistake or on purpose. An ambiguous response is a fault, and never a document."""

import asyncio
import gc
import gzip
import tracemalloc
import zlib
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace

import pytest
from fakes.upstream import delivered
from raw_http import LIMITS, Connect, http, serving

from ingest.domain.errors import Fault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.upstream.client import transport_opener
from ingest.upstream.http.transport import Kind, NoResponse, Options, TooLarge, Transport

pytestmark = pytest.mark.each_client

SMALL = replace(LIMITS, body=100_000)
CHUNKED = "Transfer-Encoding: chunked"
GZIPPED = gzip.compress(b"{}" * 99)
MANY_PARTS = gzip.compress(b"{}") + gzip.compress(b"") * 4_000

# What no client may take for a document.
BROKEN = {
    "a chunk's size is no number": http(b"zz\r\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk's size is negative": http(b"-2\r\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk's size is too large for any number": http(b"f" * 40 + b"\r\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk is longer than its size": http(b"2\r\n{}{}\r\n0\r\n\r\n", CHUNKED),
    "the last chunk is missing": http(b"2\r\n{}\r\n", CHUNKED),
    "the body is shorter than its length": http(b"{}", "Content-Length: 3"),
    "the length is no number": http(b"{}", "Content-Length: two"),
    "the length is negative": http(b"{}", "Content-Length: -2"),
    "the head breaks off": b"HTTP/1.1 200 OK\r\nContent-Le",
    "there is no head": b"{}",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n",
    "nothing": b"",
    "not compressed as it says": http(b"{}", "Content-Encoding: gzip", "Content-Length: 2"),
    "the head does not end": b"HTTP/1.1 200 OK\r\n" + b"X-Filler: " + b"x" * 300_000,
    "the head has no end of headers": b"HTTP/1.1 200 OK\r\n" + b"X-Filler: xxxxxxxxxx\r\n" * 20_000,
    "the status line does not end": b"HTTP/1.1 200 " + b"x" * 300_000,
    "two lengths that differ": http(b"{}{}", "Content-Length: 2", "Content-Length: 4"),
    "a chunk breaks off": http(b"20\r\n{}", CHUNKED),
    "the trailers break off": http(b"2\r\n{}\r\n0\r\nX-Sum: 1\r\n", CHUNKED),
    "only an interim response": http(b"", status="100 Continue"),
    "the status is no number": http(b"{}", "Content-Length: 2", status="abc"),
}
# The strict client rejects these responses as well. Others accept the document.
AMBIGUOUS = {
    "bytes after the end": http(b"{}{}", "Content-Length: 2"),
    "a second response": http(b"{}", "Content-Length: 2") * 2,
    "two lengths": http(b"{}", "Content-Length: 2", "Content-Length: 2"),
    "a length with chunks": http(b"2\r\n{}\r\n0\r\n\r\n", CHUNKED, "Content-Length: 2"),
    "a coding that is not supported": http(b"{}", "Transfer-Encoding: gzip, chunked"),
    "chunks twice": http(b"2\r\n{}\r\n0\r\n\r\n", CHUNKED, CHUNKED),
    "chunks that are not the last coding": http(b"{}", "Transfer-Encoding: chunked, gzip"),
    "a length with a sign": http(b"{}", "Content-Length: +2"),
    "a space before the colon": http(b"{}", "Content-Length : 2"),
    "a NUL in a folded header": http(b"{}", "X-Long: a\0\r\n b", "Content-Length: 2"),
    "a folded length after another one": http(b"{}", "Content-Length: 2\r\n 2"),
    "a space before the colon of a folded header": http(b"{}", "Content-Length :\r\n 2"),
    "another protocol is chosen": http(b"", "Upgrade: h2c", "Connection: upgrade", status="101 Switching Protocols"),
    "another protocol is chosen, without a name": http(b"", status="101 Switching Protocols")
    + http(b"{}", "Content-Length: 2"),
    "a status below all of HTTP": http(b"{}", "Content-Length: 2", status="042 Why"),
    "a status of four digits": http(b"{}", "Content-Length: 2", status="2000 OK"),
    "bytes after the last response": http(b"{}{}", "Content-Length: 2", "Connection: close"),
    "another version of HTTP": http(b"{}", "Content-Length: 2").replace(b"HTTP/1.1", b"HTTP/2.0"),
    "the first version of HTTP": http(b"{}", "Content-Length: 2").replace(b"HTTP/1.1", b"HTTP/0.9"),
    "another version after an interim response": http(b"", status="103 Early Hints")
    + http(b"{}", "Content-Length: 2").replace(b"HTTP/1.1", b"HTTP/2.0"),
    "chunks of HTTP/1.0": http(b"2\r\n{}\r\n0\r\n\r\n", CHUNKED).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "another protocol's name": http(b"{}", "Content-Length: 2").replace(b"HTTP/1.1", b"ICY"),
    "a NUL in a header": http(b"{}", "X-Null: a\0b", "Content-Length: 2"),
    "a NUL in a header's name": http(b"{}", "X-\0Null: a", "Content-Length: 2"),
    "a header without a name": http(b"{}", ": a", "Content-Length: 2"),
    "a header without a colon": http(b"{}", "X-Header", "Content-Length: 2"),
    "a carriage return in a header": http(b"{}", "X-Header: a\rb", "Content-Length: 2"),
    "lengths in one header": http(b"{}", "Content-Length: 2, 2"),
    "an empty length": http(b"{}", "Content-Length:"),
    "a length in hexadecimal": http(b"{}", "Content-Length: 0x2"),
    "a length larger than any number": http(b"{}", f"Content-Length: {2**64 + 2}"),
    "a chunk's size has a sign": http(b"+2\r\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk's size has a prefix": http(b"0x2\r\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk's size has a space": http(b"2 \r\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk's size ends without a carriage return": http(b"2\n{}\r\n0\r\n\r\n", CHUNKED),
    "a chunk ends without a line break": http(b"2\r\n{}0\r\n\r\n", CHUNKED),
    "a chunk's extension does not end": http(b"2;" + b"x" * 300_000, CHUNKED),
    "a trailer does not end": http(b"2\r\n{}\r\n0\r\nX-Trailer: " + b"x" * 300_000, CHUNKED),
    "trailers without end": http(b"2\r\n{}\r\n0\r\n" + b"X-Trailer: xxxxxxxxxx\r\n" * 20_000, CHUNKED),
    "something after the chunks": http(b"2\r\n{}\r\n0\r\n\r\n{}", CHUNKED),
    "interim responses without end": http(b"", status="103 Early Hints") * 50 + http(b"{}", "Content-Length: 2"),
}


# Old forms of HTTP that a client may accept, and charsets in the place of a coding.
TOLERATED = {
    "lines without a carriage return": b"HTTP/1.1 200 OK\nX-Request-ID: 7\nContent-Length: 2\n\n{}",
    "some lines without a carriage return": b"HTTP/1.1 200 OK\r\nX-Request-ID: 7\nContent-Length: 2\r\n\n{}",
    "a folded header": http(b"{}", "X-Long: a\r\n b", "X-Request-ID: 7", "Content-Length: 2"),
    "a header folded by a tab": http(b"{}", "X-Long: a\r\n\tb", "X-Request-ID: 7", "Content-Length: 2"),
    "a folded header without a carriage return": b"HTTP/1.1 200 OK\nX-Request-ID:\n 7\nContent-Length: 2\n\n{}",
    "a charset as coding": http(b"{}", "Content-Encoding: UTF-8", "X-Request-ID: 7", "Content-Length: 2"),
    "no coding by another name": http(b"{}", "Content-Encoding: none", "X-Request-ID: 7", "Content-Length: 2"),
}

# Complete by HTTP, but not decompressible.
UNREADABLE = {
    "an unknown content coding": http(b"{}", "Content-Encoding: br", "Content-Length: 2"),
    "compressed, and broken off": http(GZIPPED[:-9], "Content-Encoding: gzip", f"Content-Length: {len(GZIPPED) - 9}"),
    "two content codings": http(b"{}", "Content-Encoding: gzip", "Content-Encoding: gzip", "Content-Length: 2"),
    "compressed in too many parts": http(MANY_PARTS, "Content-Encoding: gzip", f"Content-Length: {len(MANY_PARTS)}"),
    "a coding within a coding": http(GZIPPED, "Content-Encoding: gzip, gzip", f"Content-Length: {len(GZIPPED)}"),
    "something after what was compressed": http(
        GZIPPED + b"{}", "Content-Encoding: gzip", f"Content-Length: {len(GZIPPED) + 2}"
    ),
}


@asynccontextmanager
async def answered(
    kind: Kind, answer: bytes, *, closes: bool = True
) -> AsyncIterator[tuple[Transport, str, list[bytes]]]:
    """A transport, the URL of a server that answers with these bytes, and the heads that the server has received."""
    heads: list[bytes] = []

    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        heads.append(head)
        writer.write(answer)
        await writer.drain()
        if closes:
            writer.close()

    async with serving(write) as port, transport_opener(kind)(Options(SMALL, False, None)) as transport:
        yield transport, f"http://127.0.0.1:{port}/", heads


@pytest.mark.parametrize("answer", TOLERATED.values(), ids=TOLERATED)
async def test_an_old_form_of_http_is_accepted_and_the_connection_used_again(kind: Kind, answer: bytes) -> None:
    received: list[str | None] = []

    async with answered(kind, answer, closes=False) as (transport, url, heads):
        for _ in range(3):
            document = await transport.send(
                url, {}, on_head=lambda _, headers: received.append(headers.get("X-Request-ID"))
            )
            assert document == b"{}"

    assert received == ["7"] * 3
    assert len(heads) == 3


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
async def test_a_broken_response_is_no_document(kind: Kind, answer: bytes) -> None:
    async with answered(kind, answer) as (transport, url, _):
        with pytest.raises((NoResponse, TooLarge)) as failed:
            await transport.send(url, {})

    assert "xxxx" not in str(failed.value)


@pytest.mark.parametrize("kind", ["native"], indirect=True)
@pytest.mark.parametrize("answer", UNREADABLE.values(), ids=UNREADABLE)
async def test_what_cannot_be_decompressed_is_no_document(kind: Kind, answer: bytes) -> None:
    async with answered(kind, answer, closes=False) as (transport, url, heads):
        with pytest.raises(NoResponse):
            await transport.send(url, {})

    assert len(heads) == 1


@pytest.mark.parametrize("kind", ["native"], indirect=True)
@pytest.mark.parametrize("answer", AMBIGUOUS.values(), ids=AMBIGUOUS)
async def test_after_an_ambiguous_response_the_connection_is_not_used_again(kind: Kind, answer: bytes) -> None:
    used: list[StreamWriter] = []

    async def write(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        used.append(writer)
        writer.write(answer if b"/first" in head else http(b'{"right":1}', "Content-Length: 11"))

    async with serving(write) as port, transport_opener(kind)(Options(SMALL, False, None)) as transport:
        with pytest.raises(NoResponse):
            await transport.send(f"http://127.0.0.1:{port}/first", {})

        assert await transport.send(f"http://127.0.0.1:{port}/second", {}) == b'{"right":1}'

    assert len(set(used)) == len(used) == 2


@pytest.mark.parametrize(
    "answer",
    [
        http(b"{}", "Content-Length: 2", "Connection: Upgrade", "Upgrade: h2,h2c"),
        http(b"{}", "content-LENGTH:2  "),
        http(b"{}", "Content-Length: 2", status="200"),
        http(b"{}", "Content-Length: 2", "Connection: close"),
        http(b"02\r\n{}\r\n000\r\nX-Trailer: 5\r\n\r\n", CHUNKED),
        http(b"{}", "Content-Length: 2").replace(b"HTTP/1.1", b"HTTP/1.0"),
        http(b"{}").replace(b"HTTP/1.1", b"HTTP/1.0"),
    ],
    ids=[
        "upgrade is offered",
        "spaces",
        "no reason",
        "last response",
        "zeros",
        "HTTP/1.0",
        "HTTP/1.0 without a length",
    ],
)
async def test_unusual_responses_are_accepted(kind: Kind, answer: bytes) -> None:
    async with answered(kind, answer) as (transport, url, _):
        assert await transport.send(url, {}) == b"{}"


async def test_interim_responses_are_passed_over(kind: Kind) -> None:
    answer = http(b"", "Link: <x>", status="103 Early Hints") * 2 + http(b"{}", "Content-Length: 2")

    async with answered(kind, answer, closes=False) as (transport, url, _):
        assert await transport.send(url, {}) == b"{}"


@pytest.mark.parametrize("size", [1, 7])
async def test_a_response_may_come_in_any_pieces(kind: Kind, size: int) -> None:
    whole = http(b"5\r\n[1,2,\r\n2;x=y\r\n3]\r\n0\r\nX-Trailer: t\r\n\r\n", CHUNKED)

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        for first in range(0, len(whole), size):
            writer.write(whole[first : first + size])
            await writer.drain()
            await asyncio.sleep(0)

    async with serving(write) as port, transport_opener(kind)(Options(SMALL, False, None)) as transport:
        for _ in range(2):
            assert await transport.send(f"http://127.0.0.1:{port}/", {}) == b"[1,2,3]"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b'{"a":1}')),
        ("GZIP", gzip.compress(b'{"a":1}')),
        ("deflate", zlib.compress(b'{"a":1}')),
        ("identity", b'{"a":1}'),
    ],
    ids=["gzip", "GZIP", "deflate", "identity"],
)
async def test_compressed_documents_are_decompressed(kind: Kind, coding: str, body: bytes) -> None:
    answer = http(body, f"Content-Encoding: {coding}", f"Content-Length: {len(body)}")

    async with answered(kind, answer) as (transport, url, heads):
        assert await transport.send(url, {}) == b'{"a":1}'

    assert b"gzip" in heads[0]


async def test_a_document_may_be_compressed_in_parts(kind: Kind) -> None:
    body = gzip.compress(b'{"a":') + gzip.compress(b"1}")

    async with answered(kind, http(body, "Content-Encoding: gzip", f"Content-Length: {len(body)}")) as (
        transport,
        url,
        _,
    ):
        assert await transport.send(url, {}) == b'{"a":1}'


@pytest.mark.parametrize("kind", ["native"], indirect=True)
@pytest.mark.parametrize(
    ("head", "size"),
    [
        (CHUNKED, 3_000_000),
        ("Content-Length: 2000000", 1_900_000),
        ("X-End: that of the connection", 1_900_000),
        ("\r\n".join(["a: b"] * 40_000), 0),
    ],
    ids=["too large", "incomplete", "complete", "head too long"],
)
async def test_of_a_connection_that_is_closed_no_response_is_kept(kind: Kind, head: str, size: int) -> None:
    body = b" " * size
    answer = http(b"%x\r\n%b\r\n" % (size, body) if head == CHUNKED else body, head)
    limits = replace(LIMITS, body=2_000_000)

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()
        writer.close()

    gc.collect()
    gc.disable()
    try:
        async with serving(write) as port, transport_opener(kind)(Options(limits, False, None)) as transport:
            tracemalloc.start()
            for _ in range(10):
                with suppress(NoResponse, TooLarge):
                    await transport.send(f"http://127.0.0.1:{port}/", {})
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()

    assert kept < 10_000_000, "ten bodies are twenty million bytes, and ten such heads as much"


@pytest.mark.parametrize(
    ("body", "heads"),
    [
        (gzip.compress(b" " * 2_100_000), ["Content-Encoding: gzip"]),
        (b" " * 1_900_000, ["Content-Encoding: br"]),
        (b"{" + b"0" * 1_900_000, []),
        (b"%x\r\n%b" % (3_000_000, b" " * 3_000_000), [CHUNKED]),
    ],
    ids=["too large when decompressed", "coding that is not supported", "truncated", "too large"],
)
async def test_of_an_answer_that_is_refused_no_body_is_kept(connect: Connect, body: bytes, heads: list[str]) -> None:
    """The fault of an order may be kept, in a reference cycle, until a garbage collection."""
    answer = http(body, *heads, *([f"Content-Length: {len(body)}"] if CHUNKED not in heads else []))

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    gc.collect()
    gc.disable()
    try:
        async with (
            serving(write) as port,
            connect(f"http://127.0.0.1:{port}/{{order_id}}", replace(LIMITS, body=2_000_000, tries=1)) as client,
        ):
            tracemalloc.start()
            for _ in range(30):
                with suppress(Fault):
                    await delivered(client.fetch(FetchRequest("a")))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        gc.enable()

    assert kept < 5_000_000, "what is read at a time has up to 256 KB"


@pytest.mark.parametrize("kind", ["native"], indirect=True)
async def test_a_document_in_many_small_chunks_takes_little_more_memory_than_its_size(kind: Kind) -> None:
    answer = http(b"2\r\n{}\r\n" * 500_000 + b"0\r\n\r\n", CHUNKED)

    async def write(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(answer)
        await writer.drain()

    async with serving(write) as port, transport_opener(kind)(Options(LIMITS, False, None)) as transport:
        tracemalloc.start()
        try:
            document = await transport.send(f"http://127.0.0.1:{port}/", {})
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()

    assert document == b"{}" * 500_000
    assert peak < 12_000_000, "the answer itself has 3.5 million bytes, half a million small objects 17 million"


async def test_a_body_may_end_with_the_connection(kind: Kind) -> None:
    async with answered(kind, http(b"{}")) as (transport, url, _):
        assert await transport.send(url, {}) == b"{}"
