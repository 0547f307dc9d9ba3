"""A private authority with certificates for a server and its clients, and a program that ends TLS before a server without it."""

import shutil
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import trustme
from listener import connected_to, either, forward, listening

from ingest.lab.unix_user import unprivileged_user


class Certificates:
    """PEM files in a folder. The servers' user can read the server's files.

    Attributes:
        authority: the CA that has signed the certificates.
        ca: certificate of the CA.
        server: certificate of `localhost`.
        server_key: the server's key.
        client: certificate of a client.
        client_key: the client's key.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o755)
        self.authority = trustme.CA()
        self.ca, self.server, self.server_key = folder / "ca.pem", folder / "server.pem", folder / "server.key"
        self.client, self.client_key = folder / "client.pem", folder / "client.key"
        self.authority.cert_pem.write_to_path(str(self.ca))
        for name, certificate, key in (
            ("localhost", self.server, self.server_key),
            ("client.example", self.client, self.client_key),
        ):
            issued = self.authority.issue_cert(name)
            certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
            key.touch(mode=0o600)
            issued.private_key_pem.write_to_path(str(key))
        if (user := unprivileged_user()) is not None:
            shutil.chown(self.server_key, user.uid, user.gid)

    def server_options(self) -> dict[str, str]:
        """The options of a Redis that uses TLS for its clients, and for other servers."""
        return {
            "tls_replication": "yes",
            "tls_auth_clients": "no",
            "tls_cert_file": str(self.server),
            "tls_key_file": str(self.server_key),
            "tls_ca_cert_file": str(self.ca),
        }

    def server_context(self, *, asks_clients: bool = False) -> ssl.SSLContext:
        """The TLS settings of a server. With `asks_clients`, it requires a client certificate of the CA."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(self.server, self.server_key)
        if asks_clients:
            context.load_verify_locations(self.ca)
            context.verify_mode = ssl.CERT_REQUIRED
        return context


@asynccontextmanager
async def behind_tls(port: int, context: ssl.SSLContext) -> AsyncIterator[int]:
    """The port of a program that terminates TLS for a server on this port of 127.0.0.1."""

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        async with connected_to(port) as (from_server, to_server):
            await either(forward(reader, to_server), forward(from_server, writer))

    async with listening(serve, context) as near:
        yield near
