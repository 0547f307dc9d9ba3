"""Secrets and certificates in files: checked at the start, and used again when they change, without a restart."""

import asyncio
import os
import ssl
from asyncio import StreamReader, StreamWriter
from collections.abc import Iterator, MutableMapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from fakes.upstream import delivered
from raw_http import DOCUMENT, ORDER, QUICK, Connect, http, secret, serving
from structlog.testing import capture_logs
from support import eventually

from ingest.domain.errors import ConfigError, CredentialFault, TransientFault
from ingest.domain.fetch.exchange import FetchRequest
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.lab.upstream.tls import server_tls
from ingest.upstream.access.endpoint import Access, OAuth2
from ingest.upstream.client import UpstreamClient
from ingest.upstream.http.tls_context import TlsFiles

REQUEST = FetchRequest(ORDER)


@pytest.fixture
def logs() -> Iterator[list[MutableMapping[str, Any]]]:
    with capture_logs() as entries:
        yield entries


async def is_accepted(client: UpstreamClient) -> bool:
    try:
        return (await delivered(client.fetch_once(REQUEST))).body == DOCUMENT
    except (CredentialFault, TransientFault):
        return False


async def uses_new(client: UpstreamClient) -> None:
    """Within the promised time, the client is let in."""
    await eventually(lambda: is_accepted(client), within=10)


async def has_logged(logs: list[MutableMapping[str, Any]], event: str, times: int = 1) -> bool:
    return [entry["event"] for entry in logs].count(event) >= times


def bearer_from(file: Path, value: str) -> Access:
    file.write_text(f"{value}\n")
    return Access("bearer", {"token": secret("token", value, file)})


def replaced(file: Path, content: str) -> None:
    """Replace a file atomically, like programs that rotate secrets."""
    new = file.with_suffix(".new")
    new.write_text(content)
    new.replace(file)


# -- secrets ------------------------------------------------------------------------------------------------------


async def test_a_rotated_token_is_used_without_a_restart(
    api: SimulatedApi, connect: Connect, tmp_path: Path, logs: list[MutableMapping[str, Any]]
) -> None:
    api.behave(token="first")
    async with connect(api.url_template, access=bearer_from(tmp_path / "token", "first")) as client:
        assert await is_accepted(client)

        api.behave(token="second")
        replaced(tmp_path / "token", "second\n")
        await uses_new(client)

    assert [entry["event"] for entry in logs] == ["secret_reloaded"]
    assert "second" not in str(logs)


async def test_a_secret_behind_symbolic_links_is_rotated_as_kubernetes_does(
    api: SimulatedApi, connect: Connect, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        (tmp_path / f"..{name}").mkdir()
        (tmp_path / f"..{name}" / "token").write_text(name)
        os.utime(tmp_path / f"..{name}" / "token", (1_000, 1_000))
    (tmp_path / "..data").symlink_to("..first")
    (tmp_path / "token").symlink_to("..data/token")
    access = Access("bearer", {"token": secret("token", "first", tmp_path / "token")})
    api.behave(token="first")

    async with connect(api.url_template, access=access) as client:
        assert await is_accepted(client)
        (tmp_path / "..data_tmp").symlink_to("..second")
        (tmp_path / "..data_tmp").replace(tmp_path / "..data")
        api.behave(token="second")
        await uses_new(client)


async def test_a_process_starts_with_the_file_as_it_is_now(api: SimulatedApi, connect: Connect, tmp_path: Path) -> None:
    """One that is restarted by its supervisor has settings from before the rotation."""
    access = bearer_from(tmp_path / "token", "first")
    (tmp_path / "token").write_text("second")
    api.behave(token="second")

    async with connect(api.url_template, access=access) as client:
        assert await is_accepted(client)


@pytest.mark.parametrize("content", ["", "\0", None])
async def test_a_process_that_starts_while_a_file_cannot_be_used_does_not_use_the_value_from_before(
    api: SimulatedApi, connect: Connect, tmp_path: Path, content: str | None
) -> None:
    access = bearer_from(tmp_path / "token", "revoked-token")
    (tmp_path / "token").unlink()
    if content is not None:
        (tmp_path / "token").write_text(content)

    with pytest.raises(ConfigError, match="INGEST_UPSTREAM_TOKEN_FILE") as failed:
        async with connect(api.url_template, access=access):
            pass

    assert "revoked-token" not in str(failed.value)


@pytest.mark.parametrize("content", [b"", b"two words", b"\xff\xfe", b"x" * 100_000, None])
async def test_a_file_that_cannot_be_used_changes_nothing_and_is_reported_once(
    api: SimulatedApi,
    connect: Connect,
    tmp_path: Path,
    logs: list[MutableMapping[str, Any]],
    content: bytes | None,
) -> None:
    api.behave(token="first")
    access = bearer_from(tmp_path / "token", "first")
    token = secret("token", "first", tmp_path / "token")
    access = Access("bearer", {"token": token.__class__(token.setting, "first", token.file, one_word)})
    async with connect(api.url_template, access=access) as client:
        if content is None:
            (tmp_path / "token").unlink()
        else:
            (tmp_path / "token").write_bytes(content)
        await eventually(lambda: has_logged(logs, "secret_not_reloaded"))
        assert await is_accepted(client)

        api.behave(token="second")
        (tmp_path / "token").write_text("second")
        await uses_new(client)

    assert [entry["event"] for entry in logs] == ["secret_not_reloaded", "secret_reloaded"]
    assert "INGEST_UPSTREAM_TOKEN_FILE" in logs[0]["settings"]
    assert "two words" not in str(logs)


async def test_a_file_of_headers_that_is_empty_for_a_while_changes_nothing(
    api: SimulatedApi, connect: Connect, tmp_path: Path, logs: list[MutableMapping[str, Any]]
) -> None:
    api.behave(key="X-Shop-Key: k1")
    (tmp_path / "headers").write_text("X-Shop-Key: k1")
    given = secret("headers", "X-Shop-Key: k1", tmp_path / "headers")
    given = given.__class__(
        given.setting, given.value, given.file, lambda text: text
    )  # an empty text is no error in itself

    async with connect(api.url_template, access=Access(secrets={"headers": given})) as client:
        (tmp_path / "headers").write_text("\n")
        await eventually(lambda: has_logged(logs, "secret_not_reloaded"))

        assert await is_accepted(client)
    assert logs[0]["error"] == "INGEST_UPSTREAM_HEADERS_FILE: is empty"


def one_word(text: str) -> str:
    if len(text.split()) != 1:
        raise ValueError("must be one word")
    return text


async def test_a_user_and_a_password_are_changed_together(api: SimulatedApi, connect: Connect, tmp_path: Path) -> None:
    user, password = tmp_path / "user", tmp_path / "password"
    user.write_text("me")
    password.write_text("one")
    access = Access("basic", {"user": secret("user", "me", user), "password": secret("password", "one", password)})
    api.behave(basic="me:one")

    async with connect(api.url_template, access=access) as client:
        assert await is_accepted(client)
        user.write_text("you")
        password.write_text("two")
        api.behave(basic="you:two")
        await uses_new(client)


async def test_a_rotated_client_secret_is_used_for_the_next_token(
    api: SimulatedApi, connect: Connect, tmp_path: Path
) -> None:
    api.behave(client="shop:one", token_lifetime=1.0)
    (tmp_path / "secret").write_text("one")
    secrets = {"client_id": secret("id", "shop"), "client_secret": secret("secret", "one", tmp_path / "secret")}

    async with connect(api.url_template, access=Access("oauth2", secrets, oauth2=OAuth2(api.token_url))) as client:
        assert await is_accepted(client)
        api.behave(client="shop:two")
        replaced(tmp_path / "secret", "two")
        api.authority.revoke()
        await uses_new(client)


async def test_rotated_parameters_are_used_for_the_next_token(connect: Connect, tmp_path: Path) -> None:
    asked: list[bytes] = []

    async def issue(head: bytes, reader: StreamReader, writer: StreamWriter) -> None:
        length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
        asked.append(await reader.readexactly(length))
        body = b'{"access_token": "t1", "expires_in": 1}'
        writer.write(http(body, f"Content-Length: {len(body)}"))

    async def answer(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b"{}", "Content-Length: 2"))

    async def has_asked_with_new(client: UpstreamClient) -> bool:
        await delivered(client.fetch(REQUEST))
        return b"key=second" in asked[-1]

    (tmp_path / "more").write_text("key=first")
    secrets = {"client_id": secret("id", "shop"), "client_secret": secret("secret", "one")}
    secrets["parameters"] = secret("parameters", "key=first", tmp_path / "more")
    async with serving(issue) as authority, serving(answer) as port:
        access = Access("oauth2", secrets, oauth2=OAuth2(f"http://127.0.0.1:{authority}/token"))
        async with connect(f"http://127.0.0.1:{port}/{{order_id}}", access=access) as client:
            await delivered(client.fetch(REQUEST))
            replaced(tmp_path / "more", "key=second")
            await eventually(lambda: has_asked_with_new(client))

    assert b"key=first" in asked[0]


async def test_a_request_that_is_running_finishes_with_the_credential_that_it_began_with(
    connect: Connect, tmp_path: Path, logs: list[MutableMapping[str, Any]]
) -> None:
    arrived, go_on = asyncio.Event(), asyncio.Event()
    asked: list[bytes] = []

    async def wait(head: bytes, _: StreamReader, writer: StreamWriter) -> None:
        asked.append(head)
        arrived.set()
        await go_on.wait()
        writer.write(http(b"{}", "Content-Length: 2"))

    access = bearer_from(tmp_path / "token", "first")
    async with serving(wait) as port, connect(f"http://127.0.0.1:{port}/{{order_id}}", access=access) as client:
        running = asyncio.create_task(delivered(client.fetch(REQUEST)))
        await arrived.wait()
        replaced(tmp_path / "token", "second")
        await eventually(lambda: has_logged(logs, "secret_reloaded"))
        go_on.set()

        assert (await running).body == b"{}"
    assert b"Bearer first" in asked[0]


# -- certificates -------------------------------------------------------------------------------------------------


class Party:
    """An authority with files, as a user has them."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.ca = folder / "ca.pem"
        self.cert = folder / "cert.pem"
        self.key = folder / "key.pem"
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(self.ca))
        self.renew()

    def renew(self) -> None:
        """Issue another certificate."""
        issued = self.authority.issue_cert("127.0.0.1", "client")
        self.cert.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        issued.private_key_pem.write_to_path(str(self.key))

    def adopt(self, other: "Party") -> None:
        """Become the other party, in the same files."""
        for mine, theirs in ((self.ca, other.ca), (self.cert, other.cert), (self.key, other.key)):
            mine.write_bytes(theirs.read_bytes())


@pytest.fixture
def server(tmp_path: Path) -> Party:
    return Party(tmp_path / "server")


@pytest.fixture
def client_party(tmp_path: Path) -> Party:
    return Party(tmp_path / "client")


def mutual(server: Party, client: Party) -> ssl.SSLContext:
    context = server_tls(server.cert, server.key, client.ca)
    assert context is not None
    return context


@pytest.mark.each_client
async def test_a_client_certificate_is_sent_also_to_the_authorization_server(
    connect: Connect, server: Party, client_party: Party
) -> None:
    secrets = {"client_id": secret("id", "shop"), "client_secret": secret("secret", "one")}
    tls = TlsFiles(server.ca, client_party.cert, client_party.key)

    behaviour = Behaviour(client="shop:one")
    async with SimulatedApi(behaviour, seed=1, tls=mutual(server, client_party)) as api:
        access = Access("oauth2", secrets, oauth2=OAuth2(api.token_url), tls=tls)
        async with connect(api.url_template, access=access) as client:
            assert await is_accepted(client)
        async with connect(api.url_template, QUICK, access=Access(tls=TlsFiles(server.ca))) as client:
            assert not await is_accepted(client)


@pytest.mark.each_client
async def test_the_certificate_and_its_key_may_be_in_one_file(
    connect: Connect, server: Party, client_party: Party, tmp_path: Path
) -> None:
    both = tmp_path / "both.pem"
    both.write_bytes(client_party.key.read_bytes() + client_party.cert.read_bytes())

    async with (
        SimulatedApi(seed=1, tls=mutual(server, client_party)) as api,
        connect(api.url_template, access=Access(tls=TlsFiles(server.ca, both))) as client,
    ):
        assert await is_accepted(client)


@pytest.mark.each_client
async def test_a_server_may_ask_for_the_certificate_after_it_has_read_a_request(
    connect: Connect, server: Party, client_party: Party
) -> None:
    async def ask(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        connection = writer.get_extra_info("ssl_object")

        connection.verify_client_post_handshake()
        writer.write(http(b"", status="103 Early Hints"))  # with the request for the certificate
        await eventually(lambda: bool(connection.getpeercert()))
        writer.write(http(DOCUMENT, f"Content-Length: {len(DOCUMENT)}"))

    later = mutual(server, client_party)
    later.post_handshake_auth = True
    tls = TlsFiles(server.ca, client_party.cert, client_party.key)
    async with (
        serving(ask, later) as port,
        connect(f"https://127.0.0.1:{port}/{{order_id}}", access=Access(tls=tls)) as client,
    ):
        assert await is_accepted(client)


@pytest.mark.each_client
async def test_a_server_may_refuse_the_certificate_with_a_page_as_nginx_does(
    connect: Connect, server: Party, client_party: Party
) -> None:
    async def refuse(_: bytes, __: StreamReader, writer: StreamWriter) -> None:
        writer.write(http(b"<html>", "Content-Type: text/html", "Connection: close", status="400 Bad Request"))
        writer.close()

    tls = TlsFiles(server.ca, client_party.cert, client_party.key)
    async with (
        serving(refuse, mutual(server, client_party)) as port,
        connect(f"https://127.0.0.1:{port}/{{order_id}}", access=Access(tls=tls)) as client,
    ):
        with pytest.raises(CredentialFault, match="rejects our client certificate"):
            await delivered(client.fetch(REQUEST))


@pytest.mark.each_client
async def test_a_private_authority_takes_the_place_of_the_systems(
    connect: Connect, server: Party, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(server.ca))  # as if the system trusted the server
    other = Party(tmp_path / "other")

    async with SimulatedApi(seed=1, tls=server_tls(server.cert, server.key, None)) as api:
        async with connect(api.url_template) as client:
            assert await is_accepted(client)
        async with connect(api.url_template, access=Access(tls=TlsFiles(other.ca))) as client:
            with pytest.raises(TransientFault) as fault:
                await delivered(client.fetch_once(REQUEST))

    assert not fault.value.reached


@pytest.mark.each_client
async def test_rotated_certificates_are_used_without_a_restart_and_running_requests_finish(
    connect: Connect, server: Party, client_party: Party, tmp_path: Path, logs: list[MutableMapping[str, Any]]
) -> None:
    tls = TlsFiles(server.ca, client_party.cert, client_party.key)
    first, second = Party(tmp_path / "server2"), Party(tmp_path / "client2")

    async with (
        SimulatedApi(seed=1, tls=mutual(server, client_party)) as api,
        SimulatedApi(seed=1, tls=mutual(first, second)) as rotated,
        connect(api.url_template, access=Access(tls=tls)) as client,
        connect(rotated.url_template, access=Access(tls=tls)) as later,
    ):
        assert await is_accepted(client)
        assert not await is_accepted(later)
        api.behave(latency="600")
        running = asyncio.create_task(delivered(client.fetch_once(REQUEST)))
        await eventually(lambda: has_requests(api, 2))

        server.adopt(first)
        client_party.adopt(second)
        await uses_new(later)
        assert not running.done()
        running.cancel()

    assert not await has_logged(logs, "transport_failed")


async def has_requests(api: SimulatedApi, count: int) -> bool:
    return api.stats().requests >= count


@pytest.mark.each_client
async def test_half_of_a_rotation_changes_nothing(
    connect: Connect, server: Party, client_party: Party, logs: list[MutableMapping[str, Any]]
) -> None:
    tls = TlsFiles(server.ca, client_party.cert, client_party.key)
    key = client_party.key.read_bytes()

    async with (
        SimulatedApi(seed=1, tls=mutual(server, client_party)) as api,
        connect(api.url_template, access=Access(tls=tls)) as client,
    ):
        client_party.renew()
        new_key = client_party.key.read_bytes()
        client_party.key.write_bytes(key)  # the new certificate with the old key
        await eventually(lambda: has_logged(logs, "secret_not_reloaded"))
        assert await is_accepted(client)

        client_party.key.write_bytes(new_key)
        await eventually(lambda: has_logged(logs, "secret_reloaded"))
        assert await is_accepted(client)

    assert "is not the key of the certificate" in logs[0]["error"]


@pytest.fixture(
    params=[
        f"{part} {content}" for part in ("ca", "cert", "key") for content in ("missing", "empty", "nonsense", "pipe")
    ]
)
def broken(request: pytest.FixtureRequest, client_party: Party) -> str:
    """Which of the client's files cannot be used."""
    part, _, content = request.param.partition(" ")
    path: Path = getattr(client_party, part)
    if content in {"missing", "pipe"}:
        path.unlink()
    if content == "pipe":
        os.mkfifo(path)
    elif content != "missing":
        path.write_text("" if content == "empty" else content)
    return part


async def test_files_that_cannot_be_used_are_refused_at_the_start(
    connect: Connect, client_party: Party, broken: str
) -> None:
    tls = TlsFiles(client_party.ca, client_party.cert, client_party.key)

    with pytest.raises(ConfigError, match=rf"INGEST_UPSTREAM_{broken.upper()}_FILE"):
        async with connect("https://localhost:1/{order_id}", access=Access(tls=tls)):
            pass
