"""Servers that negotiate TLS 1.2 anew on an open connection, as those do that ask for a client's certificate at some paths only."""

from asyncio import StreamReader, StreamWriter
from contextlib import suppress

import pytest
import trustme
from listener import listening
from OpenSSL import SSL
from raw_http import LIMITS, http

from ingest.upstream.http.native import opened
from ingest.upstream.http.transport import Options

ANSWER = http(b"{}", "Content-Length: 2")


class Renegotiator:
    """The server's end of one connection, by OpenSSL itself: Python's `ssl` cannot renegotiate."""

    def __init__(self, authority: trustme.CA, reader: StreamReader, writer: StreamWriter) -> None:
        context = SSL.Context(SSL.TLS_SERVER_METHOD)
        context.set_max_proto_version(SSL.TLS1_2_VERSION)
        authority.issue_cert("localhost").configure_cert(context)
        self._tls = SSL.Connection(context, None)
        self._tls.set_accept_state()
        self._reader, self._writer = reader, writer

    @property
    def negotiations(self) -> int:
        """How often the two have negotiated anew."""
        count: int = self._tls.total_renegotiations()
        return count

    async def request(self) -> bytes:
        """The head of the next request, and what TLS says before it."""
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            try:
                head += self._tls.recv(1 << 16)
            except SSL.WantReadError:
                self._send()
                self.take(await self.arrived())
        return head

    async def arrived(self) -> bytes:
        """What the client has sent, still encrypted."""
        data = await self._reader.read(1 << 16)
        if not data:
            raise ConnectionResetError
        return data

    def take(self, data: bytes) -> None:
        """What has arrived, for TLS to read."""
        self._tls.bio_write(data)

    def answer(self) -> None:
        self._tls.sendall(ANSWER)
        self._send()

    def renegotiate(self) -> None:
        """Ask the client to negotiate."""
        self._tls.renegotiate()
        self._tls.do_handshake()
        self._send()

    def _send(self) -> None:
        with suppress(SSL.WantReadError):  # there is nothing to send
            self._writer.write(self._tls.bio_read(1 << 20))


@pytest.mark.usefixtures("server_tls")
async def test_a_server_may_negotiate_anew_before_it_answers(authority: trustme.CA) -> None:
    counted: list[int] = []

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        server = Renegotiator(authority, reader, writer)
        while await server.request():
            server.renegotiate()
            server.take(await server.arrived())
            server.answer()
            counted.append(server.negotiations)

    async with listening(serve) as port, opened(Options(LIMITS, True, None)) as transport:
        for _ in range(3):
            assert await transport.send(f"https://localhost:{port}/", {}, "POST", b"") == b"{}"

    # The reply of the handshake is still unsent when the response comes, so that the connection is not used again.
    assert counted == [1, 1, 1]
