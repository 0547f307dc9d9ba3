"""The service works over each kind of connection to Redis, on each server: TLS with a client certificate, a unix socket."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import quote

import pytest
from integration.scene import Scene, ids
from integration.watching import all_stored_at_the_first_attempt
from redis.asyncio import Redis
from servers.kinds import KINDS, Kind
from support import Cli
from tls import Certificates, behind_tls

from ingest.domain.errors import QueueUnavailable
from ingest.lab.servers.server import free_port
from ingest.queue.produce.producer import Producer
from ingest.queue.redis.connection import close_idle, control_client, translated


@dataclass(frozen=True)
class Site:
    """A server."""

    url: str
    password: str
    certificates: Certificates | None = None


def _with_certificates(url: str, certificates: Certificates) -> str:
    return (
        f"{url}?ssl_ca_certs={certificates.ca}&ssl_certfile={certificates.client}&ssl_keyfile={certificates.client_key}"
    )


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def over_tls(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    """A server that requires client certificates."""
    kind: Kind = request.param
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
        certificates = Certificates(folder / "certificates")
        options: dict[str, str] = {}
        if kind.speaks_tls:
            options = {
                "tls_port": str(free_port()),
                "tls_ca_cert_file": str(certificates.ca),
                "tls_cert_file": str(certificates.server),
                "tls_key_file": str(certificates.server_key),
                "tls_auth_clients": "yes",
            }
        server = stack.enter_context(kind.server(folder / "server", **options))
        if kind.speaks_tls:
            port = int(options["tls_port"])
        else:
            context = certificates.server_context(asks_clients=True)
            port = await stack.enter_async_context(behind_tls(server.port, context))
        yield Site(f"rediss://:{server.password}@localhost:{port}/0", server.password, certificates)


@pytest.fixture(params=KINDS, ids=lambda kind: kind.name)
async def on_a_socket(request: pytest.FixtureRequest) -> AsyncIterator[Site]:
    kind: Kind = request.param
    with TemporaryDirectory(prefix="ingest-") as folder:
        socket = Path(folder) / "redis.sock"
        with kind.server(Path(folder) / "server", unixsocket=str(socket)) as server:
            yield Site(f"unix://{socket}", server.password)


async def _the_service_works(url: str, dsn: str, queue: str, cli: Cli, env: dict[str, str]) -> None:
    order_ids = ids(30)
    async with Scene.open(_with_password(url, env), dsn, queue) as scene, scene.worker():
        async with Producer.connect(scene.redis_url, queue) as producer:
            await producer.enqueue(order_ids[:15])
        announced = await asyncio.to_thread(cli.run, "enqueue", *order_ids[15:], env={"INGEST_REDIS_URL": url, **env})
        assert announced.returncode == 0, announced.stderr
        await all_stored_at_the_first_attempt(scene, order_ids)
        status = await asyncio.to_thread(cli.run, "status", "--json", env={"INGEST_REDIS_URL": url, **env})
        assert '"stored": 30' in status.stdout, status.stderr


def _with_password(url: str, env: dict[str, str]) -> str:
    if password := env.get("INGEST_REDIS_PASSWORD"):
        return f"{url}?password={quote(password)}"
    return url


async def test_over_tls_with_a_private_authority_and_a_client_certificate(
    over_tls: Site, dsn: str, queue_name: str, cli: Cli
) -> None:
    assert over_tls.certificates is not None

    await _the_service_works(_with_certificates(over_tls.url, over_tls.certificates), dsn, queue_name, cli, {})


async def test_over_a_unix_socket_with_the_password_in_a_setting_of_its_own(
    on_a_socket: Site, dsn: str, queue_name: str, cli: Cli
) -> None:
    await _the_service_works(on_a_socket.url, dsn, queue_name, cli, {"INGEST_REDIS_PASSWORD": on_a_socket.password})


@pytest.mark.parametrize("wrong", ["another authority", "another host", "no client certificate"])
async def test_what_is_not_as_agreed_is_refused_in_one_line(
    over_tls: Site, cli: Cli, tmp_path: Path, wrong: str
) -> None:
    assert over_tls.certificates is not None
    used = Certificates(tmp_path / "another") if wrong == "another authority" else over_tls.certificates
    url = _with_certificates(over_tls.url, used)
    if wrong == "another host":
        url = url.replace("localhost", "127.0.0.1")
    if wrong == "no client certificate":
        url = f"{over_tls.url}?ssl_ca_certs={used.ca}"

    done = await asyncio.to_thread(cli.run, "status", env={"INGEST_REDIS_URL": url})

    assert done.returncode == 1, done.stdout + done.stderr
    assert "\nredis: " in done.stdout
    assert wrong == "no client certificate" or "certificate verify failed" in done.stdout
    assert "Traceback" not in done.stderr
    assert over_tls.password not in done.stdout + done.stderr


async def _answers(client: Redis) -> bool:
    with translated():
        return bool(await client.ping())


async def test_a_file_that_was_wrong_for_a_moment_is_read_again(over_tls: Site, tmp_path: Path) -> None:
    assert over_tls.certificates is not None
    right, another = over_tls.certificates, Certificates(tmp_path / "another")
    used, key = tmp_path / "ca.pem", tmp_path / "client.key"
    url = f"{over_tls.url}?ssl_ca_certs={used}&ssl_certfile={right.client}&ssl_keyfile={key}"
    shutil.copy(another.ca, used)
    shutil.copy(right.client_key, key)

    async with control_client(url, connections=1) as client:
        with pytest.raises(QueueUnavailable, match="certificate verify failed"):
            await _answers(client)
        shutil.copy(right.ca, used)
        shutil.copy(another.client_key, key)
        with pytest.raises(QueueUnavailable, match="the file in ssl_certfile or ssl_keyfile cannot be used"):
            await _answers(client)
        shutil.copy(right.client_key, key)

        assert await _answers(client)


async def test_a_renewed_certificate_is_used_for_the_next_connection(over_tls: Site, tmp_path: Path) -> None:
    assert over_tls.certificates is not None
    right, another = over_tls.certificates, Certificates(tmp_path / "another")
    used = tmp_path / "ca.pem"
    url = f"{over_tls.url}?ssl_ca_certs={used}&ssl_certfile={right.client}&ssl_keyfile={right.client_key}"
    shutil.copy(right.ca, used)

    async with control_client(url, connections=1) as client:
        assert await _answers(client)
        shutil.copy(another.ca, used)
        await close_idle(client)

        with pytest.raises(QueueUnavailable, match="certificate verify failed"):
            await _answers(client)


async def test_the_given_authorities_take_the_place_of_the_systems(
    over_tls: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert over_tls.certificates is not None
    right, another = over_tls.certificates, Certificates(tmp_path / "another")
    monkeypatch.setenv("SSL_CERT_FILE", str(right.ca))  # as if the system trusted the server
    url = f"{over_tls.url}?ssl_ca_certs={another.ca}&ssl_certfile={right.client}&ssl_keyfile={right.client_key}"

    async with control_client(url, connections=1) as client:
        with pytest.raises(QueueUnavailable, match="certificate verify failed"):
            await _answers(client)
