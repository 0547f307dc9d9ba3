"""For the tests of the client of the external API: each is run with each transport there is."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest
import trustme
from raw_http import Connect, connecting

from ingest.lab.upstream import Behaviour, SimulatedApi
from ingest.telemetry.metrics import worker_shared_metrics
from ingest.telemetry.shared_metrics import SharedMetrics
from ingest.upstream.http.transport import Kind

KINDS: list[Kind] = ["native", "aiohttp"]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


@pytest.fixture(scope="session")
def loaded_api() -> SimulatedApi:
    """Ten thousand orders, loaded once."""
    return SimulatedApi(seed=1)


@pytest.fixture
async def api(loaded_api: SimulatedApi) -> AsyncIterator[SimulatedApi]:
    loaded_api.behave(**msgspec.structs.asdict(Behaviour()))
    loaded_api.reset_stats()
    async with loaded_api as api:
        yield api


@pytest.fixture
def shared_metrics() -> SharedMetrics:
    return worker_shared_metrics(1)


@pytest.fixture
def connect(shared_metrics: SharedMetrics, kind: Kind) -> Connect:
    return connecting(shared_metrics, kind)


@pytest.fixture(autouse=True)
async def no_complaints() -> AsyncIterator[None]:
    """Fail the test for exceptions in callbacks, which no task awaits."""
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    yield
    assert complaints == []


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
async def https_api(server_tls: ssl.SSLContext) -> AsyncIterator[SimulatedApi]:
    """The API on HTTPS, at localhost."""
    async with SimulatedApi(Behaviour(), host="localhost", seed=1, tls=server_tls) as api:
        # The certificate is for the name.
        api.base_url = api.base_url.replace("127.0.0.1", "localhost")
        api.url_template = api.url_template.replace("127.0.0.1", "localhost")
        api.token_url = api.token_url.replace("127.0.0.1", "localhost")
        yield api


@pytest.fixture
def server_tls(authority: trustme.CA, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """The TLS files of a server named localhost, whose CA clients trust through the usual setting."""
    authority.cert_pem.write_to_path(str(tmp_path / "authority.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authority.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    return context
