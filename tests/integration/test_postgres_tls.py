"""PostgreSQL over TLS, as `sslmode=verify-full` with a private authority and a client certificate: on a server and on a pooler."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import pytest
from integration.scene import Scene, ids
from integration.watching import all_stored_at_the_first_attempt, nothing_is_blamed
from proxy import Proxy
from servers import debian_postgres, pgbouncer
from servers.debian_postgres import DebianPostgres
from servers.pgbouncer import PgBouncer
from structlog.testing import capture_logs
from support import Cli, connected, eventually
from tls import Certificates

from ingest.lab.servers import PostgresServer
from ingest.store.schema import migrate, migrations

KINDS = [name for name, here in (("postgresql-15", debian_postgres.IS_HERE), ("pgbouncer", pgbouncer.IS_HERE)) if here]
# A password and a certificate of the CA, and no access without TLS.
_ACCESS = "hostssl all all all scram-sha-256 clientcert=verify-ca\n"


@dataclass(frozen=True)
class Site:
    """A server that speaks TLS only.

    Attributes:
        plain: its DSN, without anything about TLS.
        direct: where the test itself looks.
        certificates: its own, and a client's.
    """

    plain: str
    direct: str
    certificates: Certificates

    def dsn(self, host: str = "localhost", **options: object) -> str:
        """The service's DSN. Options are added to the correct ones, or replace them."""
        certificates = self.certificates
        right = {"sslrootcert": certificates.ca, "sslcert": certificates.client, "sslkey": certificates.client_key}
        used = {"sslmode": "verify-full", **right, **options}
        query = "&".join(f"{name}={value}" for name, value in used.items() if value is not None)
        return urlunsplit(urlsplit(self.plain.replace("127.0.0.1", host))._replace(query=query))


@pytest.fixture(scope="module", params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
        folder.chmod(0o755)
        certificates = Certificates(folder / "certificates")
        files = (certificates.ca, certificates.server, certificates.server_key)
        if request.param == "pgbouncer":
            postgres = stack.enter_context(PostgresServer(folder / "postgres"))
            names = ("client_tls_ca_file", "client_tls_cert_file", "client_tls_key_file")
            settings = {"client_tls_sslmode": "verify-full", **dict(zip(names, map(str, files), strict=True))}
            pooler = stack.enter_context(PgBouncer(folder / "pgbouncer", postgres, settings=settings))
            yield Site(pooler.dsn, postgres.dsn, certificates)
            return
        (folder / "hba.conf").write_text(_ACCESS)
        names = ("ssl_ca_file", "ssl_cert_file", "ssl_key_file")
        settings = {"ssl": "on", "hba_file": str(folder / "hba.conf"), **dict(zip(names, map(str, files), strict=True))}
        server = stack.enter_context(DebianPostgres(folder / "postgres", settings))
        yield Site(server.dsn, Site(server.dsn, "", certificates).dsn(), certificates)


@pytest.fixture
async def scene(site: Site, redis_url: str, queue_name: str) -> AsyncIterator[Scene]:
    await migrate(site.dsn(), migrations())
    async with Scene.open(redis_url, site.direct, queue_name) as scene:
        yield scene
        await scene.sql("TRUNCATE orders")


async def test_a_worker_stores_orders(site: Site, scene: Scene) -> None:
    order_ids = ids(20)
    async with scene.worker(postgres_dsn=site.dsn()):
        await scene.enqueue(*order_ids)

        await all_stored_at_the_first_attempt(scene, order_ids)


async def test_the_users_file_of_the_authority_may_be_missing_for_a_while(
    site: Site, scene: Scene, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read for each connection: that there is none for now is no row's fault."""
    authority = tmp_path / ".postgresql" / "root.crt"
    authority.parent.mkdir()
    shutil.copy(site.certificates.ca, authority)
    monkeypatch.setenv("HOME", str(tmp_path))
    port = urlsplit(site.plain).port
    assert port is not None

    with Proxy(port) as between:
        dsn = site.dsn(sslrootcert=None).replace(f":{port}/", f":{between.port}/")
        waiting = await _loses_its_authority_for_a_while(scene, dsn, between, authority)

    assert waiting["log_level"] == "error"  # only an operator can correct it
    assert str(authority) in waiting["error"]


async def _loses_its_authority_for_a_while(
    scene: Scene, dsn: str, between: Proxy, authority: Path
) -> MutableMapping[str, Any]:
    async with scene.worker(postgres_dsn=dsn):
        await scene.enqueue(*ids(5, "before"))
        await scene.stored_at_least(5)
        kept = await asyncio.to_thread(authority.rename, authority.with_name("kept"))
        between.cut()
        with capture_logs() as logs:
            await scene.enqueue(*ids(5, "meanwhile"))
            waiting = await eventually(lambda: _has_logged(logs, "unavailable"))
        await nothing_is_blamed(scene)
        await asyncio.to_thread(kept.rename, authority)
        await all_stored_at_the_first_attempt(scene, [*ids(5, "before"), *ids(5, "meanwhile")])
    return waiting


async def _has_logged(logs: list[MutableMapping[str, Any]], event: str) -> MutableMapping[str, Any] | None:
    return next((entry for entry in logs if entry["event"] == event), None)


async def test_the_connection_is_encrypted(site: Site) -> None:
    async with connected(site.dsn()) as sql:
        assert sql._transport.get_extra_info("ssl_object") is not None


@pytest.mark.parametrize(
    ("host", "wrong", "said"),
    [
        ("127.0.0.1", {}, "certificate verify failed"),
        ("localhost", {"sslrootcert": "another"}, "certificate verify failed"),
        ("localhost", {"sslcert": None, "sslkey": None}, "certificate|closed"),
        (
            "localhost",
            {"sslmode": "disable", "sslrootcert": None, "sslcert": None, "sslkey": None},
            "PostgreSQL|TLS|SSL",
        ),
    ],
    ids=["another host's certificate", "another authority", "no client certificate", "no TLS"],
)
async def test_what_is_not_as_agreed_is_refused_in_one_line(
    site: Site, cli: Cli, tmp_path: Path, host: str, wrong: dict[str, object], said: str
) -> None:
    if wrong.get("sslrootcert") == "another":
        wrong = {"sslrootcert": Certificates(tmp_path / "another").ca}
    dsn = site.dsn(host, **wrong)

    done = await asyncio.to_thread(cli.run, "status", env={"INGEST_POSTGRES_DSN": dsn})

    assert done.returncode == 1
    assert any(word in done.stdout + done.stderr for word in said.split("|")), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    assert str(urlsplit(site.plain).password) not in done.stdout + done.stderr
