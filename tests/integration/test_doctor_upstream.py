"""`ingest doctor` names each fault of the external API, on a real server that has it."""

import ssl
from collections.abc import AsyncIterator, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import trustme
from listener import listening, refuse_handshake
from pydantic import SecretStr
from redis.asyncio import Redis
from scripted_http import ScriptedServer, http, scripted_server
from set_ups import SetUp, database

from ingest.lab.servers import EmbeddedServers
from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.operations.doctor.finding import Area, Level
from ingest.queue.layout.keys import Keys

NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def dsn(own_servers: EmbeddedServers) -> Iterator[str]:
    with database(own_servers) as dsn:
        yield dsn


@pytest.fixture
async def api() -> AsyncIterator[SimulatedApi]:
    async with SimulatedApi(Behaviour(any_id=True)) as api:
        yield api


@pytest.fixture
async def set_up(own_servers: EmbeddedServers, dsn: str, queue_name: str, api: SimulatedApi) -> AsyncIterator[SetUp]:
    """With one order that is queued."""
    stream = Keys.of(queue_name).stream
    async with Redis.from_url(own_servers.redis_url) as redis:
        await redis.xadd(stream, {"order_id": "queued-1"})
        yield SetUp(
            {
                "redis_url": own_servers.redis_url,
                "postgres_dsn": dsn,
                "stream": queue_name,
                "upstream_url": api.url_template,
            }
        )
        await redis.delete(stream)


@pytest.fixture
async def scripted() -> AsyncIterator[ScriptedServer]:
    async with scripted_server() as server:
        yield server


def served(authority: trustme.CA, days: float) -> ssl.SSLContext:
    """The certificate of a server called localhost that expires in this number of days."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    began, ends = NOW - timedelta(days=100), NOW + timedelta(days=days)
    authority.issue_cert("localhost", not_before=began, not_after=ends).configure_cert(context)
    return context


@pytest.fixture
def authority(tmp_path: Path) -> tuple[trustme.CA, str]:
    made = trustme.CA()
    made.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    return made, str(tmp_path / "authority.pem")


async def test_the_order_that_is_asked_for_is_the_given_one_or_the_one_queued_last(
    set_up: SetUp, api: SimulatedApi
) -> None:
    queued = await set_up.examined()
    given = await set_up.examined("given-1")

    assert any("order queued-1 took" in each.what for each in queued)
    assert any("the document of order given-1 fits" in each.what for each in given)
    assert api.stats().requests == 2


async def test_a_name_that_cannot_be_resolved_and_a_port_without_server_are_faults(set_up: SetUp) -> None:
    (name,) = await set_up.faults(Area.UPSTREAM, upstream_url="http://nowhere.invalid/{order_id}")
    (port,) = await set_up.faults(Area.UPSTREAM, upstream_url="http://127.0.0.1:1/{order_id}")

    assert "the name nowhere.invalid cannot be resolved" in name
    assert "127.0.0.1:1 cannot be reached: Connection refused" in port


async def test_a_certificate_that_is_not_trusted_or_has_expired_is_a_fault_and_one_that_soon_does_a_warning(
    set_up: SetUp, authority: tuple[trustme.CA, str]
) -> None:
    ca, file = authority

    async def examined(days: float, **settings: object) -> tuple[Level, str]:
        async with scripted_server(served(ca, days)) as server:
            server.answer(http(404))
            url = server.url.replace("127.0.0.1", "localhost") + "/{order_id}"
            found = await set_up.examined(upstream_url=url, **settings)
        (way,) = [each for each in found if "localhost:" in each.what]
        return way.level, way.what

    trusting = {"upstream_ca_file": file}
    unknown, expired, soon, later = (
        await examined(90),
        await examined(-1, **trusting),
        await examined(5, **trusting),
        await examined(90, **trusting),
    )

    assert unknown[0] is expired[0] is Level.ERROR
    assert "is not accepted: unable to get local issuer certificate" in unknown[1]
    assert "is not accepted: certificate has expired" in expired[1]
    assert (soon[0], later[0]) == (Level.WARNING, Level.OK)
    assert "expires in 5 days" in soon[1]


async def test_a_server_without_tls_at_an_https_url_is_a_fault(set_up: SetUp, api: SimulatedApi) -> None:
    url = api.url_template.replace("http://", "https://")

    (fault,) = await set_up.faults(Area.UPSTREAM, upstream_url=url)

    assert "the TLS handshake with" in fault


async def test_a_server_that_closes_the_connection_during_the_handshake_is_a_fault(set_up: SetUp) -> None:
    async with listening(refuse_handshake) as port:
        (fault,) = await set_up.faults(Area.UPSTREAM, upstream_url=f"https://127.0.0.1:{port}/{{order_id}}")

    assert "failed: the server closed the connection during the TLS handshake" in fault


async def test_a_credential_that_the_api_refuses_is_a_fault_without_the_credential(
    set_up: SetUp, api: SimulatedApi
) -> None:
    api.behave(token="right")
    (fault,) = await set_up.faults(Area.UPSTREAM, upstream_token=SecretStr("wr0ng"))
    accepted = await set_up.warnings(Area.UPSTREAM, upstream_token=SecretStr("right"))

    assert fault == "order queued-1: HTTP 401: the external API rejects our credential"
    assert accepted == []


async def test_an_authorization_server_that_issues_no_token_is_a_fault_also_without_an_order(
    set_up: SetUp, api: SimulatedApi, queue_name: str
) -> None:
    api.behave(client="shop:right")
    oauth2 = {
        "stream": f"{queue_name}-empty",
        "upstream_auth": "oauth2",
        "upstream_oauth2_url": api.token_url,
        "upstream_oauth2_client_id": SecretStr("shop"),
    }

    (fault,) = await set_up.faults(Area.UPSTREAM, **oauth2, upstream_oauth2_client_secret=SecretStr("wr0ng"))
    found = await set_up.examined(**oauth2, upstream_oauth2_client_secret=SecretStr("right"))

    assert fault.startswith("no access token: ")
    assert "wr0ng" not in fault
    assert any("no order to request is known, a token was obtained" in each.what for each in found)
    assert api.stats().requests == 0


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"upstream_token": SecretStr("t")}, "the credential is sent to nowhere.invalid:80 unencrypted"),
        ({"upstream_headers": SecretStr("X-Api-Key: k")}, "the credential is sent to nowhere.invalid:80 unencrypted"),
        (
            {"upstream_url": "http://nowhere.invalid/{order_id}?api_key=k"},
            "the credential is sent to nowhere.invalid:80",
        ),
        (
            {
                "upstream_url": "https://nowhere.invalid/{order_id}",
                "upstream_auth": "oauth2",
                "upstream_oauth2_url": "http://login.invalid/token",
                "upstream_oauth2_client_id": SecretStr("shop"),
                "upstream_oauth2_client_secret": SecretStr("s3cr3t"),
            },
            "the client secret is sent to login.invalid:80 unencrypted",
        ),
    ],
    ids=["token", "header", "query", "client secret"],
)
async def test_a_credential_that_is_sent_unencrypted_to_another_host_is_a_warning(
    set_up: SetUp, settings: dict[str, object], named: str
) -> None:
    (warning,) = await warnings_of(set_up, **settings)

    assert named in warning


async def test_headers_and_queries_without_a_credential_may_be_unencrypted(set_up: SetUp) -> None:
    url = "http://nowhere.invalid/{order_id}?expand=lines"

    assert await warnings_of(set_up, upstream_url=url, upstream_headers=SecretStr("Accept: text/x")) == []


async def warnings_of(set_up: SetUp, **settings: object) -> list[str]:
    """The warnings about an API on another host, which does not exist."""
    found = await set_up.examined(**{"upstream_url": "http://nowhere.invalid/{order_id}", **settings})
    return [each.what for each in found if each.area is Area.UPSTREAM and each.level is Level.WARNING]


async def test_a_document_that_does_not_fit_is_a_fault_that_says_where(set_up: SetUp, scripted: ScriptedServer) -> None:
    scripted.answer(http(200, b'{"order": {"id": 1, "email": "a@b.example"}}'))
    url = f"{scripted.url}/{{order_id}}"

    (without,) = await set_up.faults(Area.UPSTREAM, upstream_url=url)
    (mapped,) = await set_up.faults(Area.UPSTREAM, upstream_url=url, mapping="shopify")

    assert "the document of order queued-1 does not fit" in without
    assert "does not fit" in mapped
    assert "a@b.example" not in without + mapped


@pytest.mark.parametrize(
    ("answer", "level", "named"),
    [
        (http(404), Level.WARNING, "order queued-1 is unknown to the API: HTTP 404"),
        (http(400), Level.ERROR, "order queued-1 would be dead-lettered: HTTP 400"),
        (http(500), Level.ERROR, "order queued-1: HTTP 500"),
        (http(429, retry_after="7"), Level.WARNING, "the API throttles: HTTP 429"),
        (http(200, b"{}", **{"x-name ": "a"}), Level.ERROR, "order queued-1: the response is not valid HTTP"),
        (http(200, b"<html>log in</html>"), Level.ERROR, "does not fit"),
        (b"", Level.ERROR, "order queued-1: "),
        (b"SSH-2.0-OpenSSH_9.2\r\n", Level.ERROR, "order queued-1: "),
    ],
)
async def test_what_an_answer_without_an_order_means(
    set_up: SetUp, scripted: ScriptedServer, answer: bytes, level: Level, named: str
) -> None:
    scripted.answer(answer)

    found = await set_up.examined(upstream_url=f"{scripted.url}/{{order_id}}")

    (finding,) = [each for each in found if each.area is Area.UPSTREAM and each.level is not Level.OK]
    assert finding.level is level
    assert named in finding.what


async def test_a_slow_answer_is_a_warning(set_up: SetUp, api: SimulatedApi) -> None:
    api.behave(latency="2.2")

    (warning,) = await set_up.warnings(
        Area.UPSTREAM, upstream_timeout=4.0, upstream_read_timeout=4.0, upstream_connect_timeout=4.0
    )

    assert "over half of INGEST_UPSTREAM_TIMEOUT (4 s)" in warning


async def test_a_shop_that_does_not_respond_is_named_after_the_time_limit_of_the_check(
    set_up: SetUp, api: SimulatedApi
) -> None:
    api.behave(latency="60")
    set_up.within = 2.0

    (fault,) = await set_up.faults(Area.UPSTREAM)

    assert fault == "order queued-1: no response for 2 s"


async def test_bulk_requests_are_used_where_workers_use_them(set_up: SetUp, api: SimulatedApi) -> None:
    found = await set_up.examined(upstream_bulk_url=api.list_template)

    assert any("the document of order queued-1 fits" in each.what for each in found)
