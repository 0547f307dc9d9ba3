"""TLS sessions: a connection to a host continues the session of an earlier one, if nothing speaks against it."""

import asyncio
import dataclasses
import socket
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trustme
import uvloop
from listener import connected_to, either, forward, listening
from msgspec.structs import replace
from raw_http import LIMITS, http, serving

from ingest.upstream.http.native import NativeTransport, opened
from ingest.upstream.http.tls_sessions import TlsSessions
from ingest.upstream.http.transport import NoResponse, Options, Transport

OPTIONS = Options(limits=LIMITS, is_tls=True, proxy=None)
MANY = 40
Answer = Callable[[bytes, StreamReader, StreamWriter], Awaitable[None]]


def noting(resumed: list[bool]) -> Answer:
    """Answers one request on each connection, and notes whether the connection has continued a session."""

    async def answer(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        resumed.append(writer.get_extra_info("ssl_object").session_reused)
        writer.write(http(b"{}", "Content-Length: 2", "Connection: close"))

    return answer


def noting_together(resumed: list[bool]) -> Answer:
    """The same, for `MANY` connections that are open at the same time."""
    everybody = asyncio.Barrier(MANY)
    noted = noting(resumed)

    async def answer(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        await everybody.wait()
        await noted(head, reader, writer)

    return answer


async def fetch_many(transport: Transport, url: str) -> None:
    assert await asyncio.gather(*(transport.send(url, {}) for _ in range(MANY))) == [b"{}"] * MANY


def test_further_connections_continue_the_session_of_the_first(server_tls: ssl.SSLContext) -> None:
    resumed: list[bool] = []

    async def main() -> None:
        async with serving(noting(resumed), server_tls) as port, opened(OPTIONS) as transport:
            url = f"https://localhost:{port}/"
            assert await transport.send(url, {}) == b"{}"
            await fetch_many(transport, url)

    for loop_factory in (uvloop.new_event_loop, asyncio.new_event_loop):
        resumed.clear()
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(main())

        assert resumed == [False] + [True] * MANY


async def test_many_connections_opened_at_once_all_get_their_answers(server_tls: ssl.SSLContext) -> None:
    resumed: list[bool] = []

    async with serving(noting_together(resumed), server_tls) as port, opened(OPTIONS) as transport:
        await fetch_many(transport, f"https://localhost:{port}/")

    assert not all(resumed)


async def test_of_many_connections_at_once_most_wait_until_the_first_ones_have_a_session_or_fail() -> None:
    host = TlsSessions().of("localhost")
    first = [asyncio.create_task(host.turn()) for _ in range(MANY)]
    await asyncio.sleep(0)
    waiting = [task for task in first if not task.done()]

    host.connection_failed(None)
    await asyncio.wait_for(asyncio.gather(*first), 15)

    assert 0 < len(waiting) < MANY


async def test_no_connection_waits_for_long_for_a_session() -> None:
    host = TlsSessions().of("localhost")

    await asyncio.wait_for(asyncio.gather(*(host.turn() for _ in range(MANY))), 15)


async def test_a_session_that_was_taken_ends_the_wait(server_tls: ssl.SSLContext) -> None:
    resumed: list[bool] = []

    async with serving(noting(resumed), server_tls) as port, opened(OPTIONS) as transport:
        await fetch_many(transport, f"https://localhost:{port}/")
        await fetch_many(transport, f"https://localhost:{port}/")

    assert resumed[MANY:] == [True] * MANY


async def test_waiting_for_a_session_does_not_use_up_the_time_for_connecting(server_tls: ssl.SSLContext) -> None:
    server_tls.num_tickets = 0
    options = replace(OPTIONS, limits=dataclasses.replace(LIMITS, connect=2.0))

    async with serving(noting_together([]), server_tls) as port, opened(options) as transport:
        assert isinstance(transport, NativeTransport)
        transport._sessions = TlsSessions(longest_wait=2.5)

        await fetch_many(transport, f"https://localhost:{port}/")


async def test_waiting_for_a_session_ends_with_the_time_for_the_request(server_tls: ssl.SSLContext) -> None:
    server_tls.num_tickets = 0
    options = replace(OPTIONS, limits=dataclasses.replace(LIMITS, total=1.0))

    async with serving(noting_together([]), server_tls) as port, opened(options) as transport:
        assert isinstance(transport, NativeTransport)
        transport._sessions = TlsSessions(longest_wait=60)
        requests = [asyncio.create_task(transport.send(f"https://localhost:{port}/", {})) for _ in range(MANY)]

        ended, waiting = await asyncio.wait(requests, timeout=15)

        assert not waiting
        errors = [task.exception() for task in ended]
        assert all(isinstance(error, NoResponse) and error.timed_out for error in errors)


@pytest.mark.parametrize("kind", ["no tickets", "TLS 1.2"])
async def test_a_server_without_sessions_to_continue_gets_full_handshakes(
    server_tls: ssl.SSLContext, kind: str
) -> None:
    if kind == "TLS 1.2":
        server_tls.maximum_version = ssl.TLSVersion.TLSv1_2
    else:
        server_tls.num_tickets = 0
    resumed: list[bool] = []

    async with serving(noting_together(resumed), server_tls) as port, opened(OPTIONS) as transport:
        await fetch_many(transport, f"https://localhost:{port}/")

    assert resumed == [False] * MANY


async def test_a_session_that_the_server_does_not_know_is_replaced_by_a_new_one(
    server_tls: ssl.SSLContext, authority: trustme.CA
) -> None:
    restarted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(restarted)
    before: list[bool] = []
    after: list[bool] = []

    async with (
        serving(noting(before), server_tls) as port,
        serving(noting(after), restarted) as other_port,
        opened(OPTIONS) as transport,
    ):
        await transport.send(f"https://localhost:{port}/", {})
        for _ in range(3):
            await transport.send(f"https://localhost:{other_port}/", {})

    assert (before, after) == ([False], [False, True, True])


async def test_a_session_of_one_server_does_not_admit_another_whose_certificate_is_not_trusted(
    server_tls: ssl.SSLContext,
) -> None:
    stranger = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(stranger)
    asked: list[bool] = []

    async with (
        serving(noting([]), server_tls) as port,
        serving(noting(asked), stranger) as strange_port,
        opened(OPTIONS) as transport,
    ):
        await transport.send(f"https://localhost:{port}/", {})
        with pytest.raises(NoResponse, match="certificate"):
            await transport.send(f"https://localhost:{strange_port}/", {})

    assert asked == []


async def test_a_session_is_offered_to_the_host_that_gave_it_only(
    server_tls: ssl.SSLContext, authority: trustme.CA
) -> None:
    authority.issue_cert("localhost", "127.0.0.1").configure_cert(server_tls)
    resumed: list[bool] = []

    async with serving(noting(resumed), server_tls) as port, opened(OPTIONS) as transport:
        for host in ("localhost", "127.0.0.1", "localhost", "127.0.0.1"):
            await transport.send(f"https://{host}:{port}/", {})

    assert resumed == [False, False, True, True]


async def test_after_a_connection_with_an_offer_has_failed_none_is_offered(server_tls: ssl.SSLContext) -> None:
    resumed: list[bool] = []

    async with (
        serving(noting(resumed), server_tls) as port,
        intolerant(port, refused={1}) as url,
        opened(OPTIONS) as transport,
    ):
        await transport.send(url, {})
        with pytest.raises(NoResponse):
            await transport.send(url, {})
        for _ in range(3):
            await transport.send(url, {})

    assert resumed == [False] * 4


async def test_a_connection_that_is_refused_before_its_offer_does_not_end_offers(server_tls: ssl.SSLContext) -> None:
    resumed: list[bool] = []

    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        async with serving(noting(resumed), server_tls) as port, opened(OPTIONS) as transport:
            await transport.send(f"https://localhost:{port}/", {})
            with pytest.raises(NoResponse):
                await transport.send(f"https://localhost:{deaf.getsockname()[1]}/", {})
            await transport.send(f"https://localhost:{port}/", {})

    assert resumed == [False, True]


async def test_a_connection_begun_before_there_was_a_session_does_not_end_offers_when_it_fails(
    server_tls: ssl.SSLContext,
) -> None:
    """As with a slow server, on which some of the first handshakes take too long."""
    resumed: list[bool] = []

    async with (
        serving(noting(resumed), server_tls) as port,
        holding() as (held_url, held),
        opened(OPTIONS) as transport,
    ):
        without_offer = asyncio.create_task(transport.send(held_url, {}))
        server_side = await held.get()
        await transport.send(f"https://localhost:{port}/", {})
        with_offer = asyncio.create_task(transport.send(held_url, {}))
        await held.get()

        server_side.close()
        with pytest.raises(NoResponse):
            await without_offer
        await transport.send(f"https://localhost:{port}/", {})
        with_offer.cancel()
        await asyncio.wait([with_offer])

    assert resumed == [False, True]


async def test_a_server_that_has_continued_a_session_is_offered_a_new_one_after_an_outage(
    server_tls: ssl.SSLContext,
) -> None:
    resumed: list[bool] = []

    async with (
        serving(noting(resumed), server_tls) as port,
        intolerant(port, refused={2}) as url,
        opened(OPTIONS) as transport,
    ):
        await transport.send(url, {})
        await transport.send(url, {})
        with pytest.raises(NoResponse):
            await transport.send(url, {})
        await transport.send(url, {})
        await transport.send(url, {})

    assert resumed == [False, True, False, True]


async def test_a_server_that_no_longer_copes_with_offers_gets_full_handshakes_soon(server_tls: ssl.SSLContext) -> None:
    """As after a load balancer has been replaced by one that refuses sessions, instead of ignoring them."""

    def refuse_offer(tls: ssl.SSLObject, _: str | None, __: ssl.SSLContext) -> int | None:
        return ssl.AlertDescription.ALERT_DESCRIPTION_INTERNAL_ERROR if tls.session_reused else None

    resumed: list[bool] = []
    outcomes: list[bytes | None] = []

    async with serving(noting(resumed), server_tls) as port, opened(OPTIONS) as transport:
        url = f"https://localhost:{port}/"
        await transport.send(url, {})
        await transport.send(url, {})
        server_tls.sni_callback = refuse_offer
        for _ in range(8):
            try:
                outcomes.append(await transport.send(url, {}))
            except NoResponse:
                outcomes.append(None)

    assert resumed[:2] == [False, True]
    assert outcomes[4:] == [b"{}"] * 4


async def test_a_server_that_continues_sessions_and_then_closes_without_an_answer_gets_full_handshakes_soon(
    server_tls: ssl.SSLContext,
) -> None:
    """As a server behind a proxy that ends TLS, and keeps sessions for servers that are gone."""
    noted = noting([])

    async def answer(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        if writer.get_extra_info("ssl_object").session_reused:
            writer.close()
        else:
            await noted(head, reader, writer)

    outcomes: list[bytes | None] = []
    async with serving(answer, server_tls) as port, opened(OPTIONS) as transport:
        for _ in range(6):
            try:
                outcomes.append(await transport.send(f"https://localhost:{port}/", {}))
            except NoResponse:
                outcomes.append(None)

    assert outcomes == [b"{}", None, *[b"{}"] * 4]


async def test_certificates_are_verified_again_after_a_while(server_tls: ssl.SSLContext) -> None:
    async def resumed(longest_use: float) -> list[bool]:
        found: list[bool] = []
        async with serving(noting(found), server_tls) as port, opened(OPTIONS) as transport:
            assert isinstance(transport, NativeTransport)
            transport._sessions = TlsSessions(longest_use)
            for _ in range(3):
                assert await transport.send(f"https://localhost:{port}/", {}) == b"{}"
        return found

    assert await resumed(longest_use=3600) == [False, True, True]
    assert await resumed(longest_use=0) == [False, False, False]


@asynccontextmanager
async def intolerant(port: int, refused: set[int]) -> AsyncIterator[str]:
    """A proxy in front of this port that closes some connections at their first bytes; yields the URL."""
    count = iter(range(1000))

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        if next(count) in refused:
            await reader.read(1 << 16)
            return
        async with connected_to(port) as (from_server, to_server):
            await either(forward(from_server, writer), forward(reader, to_server))

    async with listening(serve) as near:
        yield f"https://localhost:{near}/"


@asynccontextmanager
async def holding() -> AsyncIterator[tuple[str, asyncio.Queue[StreamWriter]]]:
    """A server that answers no handshake; yields its URL, and the connections whose handshake has begun."""
    held: asyncio.Queue[StreamWriter] = asyncio.Queue()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        await reader.read(1 << 16)
        held.put_nowait(writer)
        await writer.wait_closed()

    async with listening(serve) as port:
        yield f"https://localhost:{port}/", held
