"""For the contract tests: each kind of Redis there is, a raw client beside ours, and servers that a test may stop, fill
or spoil."""

from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_set import ClusterSet
from consumers import Consumer
from contract.heartbeating import connect
from redis.asyncio import Redis
from servers.kinds import KINDS, Kind
from topologies import DRIVER_INFO, Place, SharedServers, Topology

from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import control_client


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a marked test in a cluster as well."""
    marker = metafunc.definition.get_closest_marker("topologies")
    if marker and "topology" in metafunc.fixturenames and "own_valkey" not in metafunc.fixturenames:
        metafunc.parametrize("topology", marker.args or ("standalone", "cluster"))


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """The servers of a test. A test that uses Redis runs on each kind of it."""
    found: Kind = request.param
    return found


@pytest.fixture
def topology() -> Topology:
    """How servers of this kind are combined."""
    return "standalone"


@pytest.fixture
def place(kind: Kind, topology: Topology) -> Place:
    """Where the test's queue is."""
    return Place(kind, topology)


@pytest.fixture(scope="session")
def shared_servers() -> Iterator[SharedServers]:
    with SharedServers.open() as servers:
        yield servers


@pytest.fixture(scope="session")
def shared_server(shared_servers: SharedServers) -> Callable[[Kind], ValkeyServer]:
    """One server of each kind for all tests."""
    return shared_servers.server


@pytest.fixture(scope="session")
def shared_cluster(shared_servers: SharedServers) -> Callable[[Kind], ClusterSet]:
    """One cluster of three primaries of each kind for all tests that leave it as it is."""
    return shared_servers.cluster


@pytest.fixture
def redis_url(place: Place, shared_servers: SharedServers) -> str:
    return shared_servers.url(place)


@pytest.fixture
def keys(queue_name: str) -> Keys:
    return Keys.of(queue_name)


@pytest.fixture
async def redis(place: Place, shared_servers: SharedServers) -> AsyncIterator[Redis]:
    """A client of the server with the test's queue, or of all nodes of a cluster."""
    url = shared_servers.url(place)
    async with (
        control_client(url) if place.topology == "cluster" else Redis.from_url(url, driver_info=DRIVER_INFO) as client
    ):
        yield client


@pytest.fixture
async def one(redis_url: str, queue_name: str) -> AsyncIterator[Consumer]:
    """A consumer of the test's queue."""
    async with connect(redis_url, queue_name, "one") as consumer:
        await consumer.ensure_group()
        yield consumer


@pytest.fixture
async def two(redis_url: str, queue_name: str, one: Consumer) -> AsyncIterator[Consumer]:
    """A second consumer of the same queue."""
    del one  # it has created the group
    async with connect(redis_url, queue_name, "two") as consumer:
        yield consumer


@pytest.fixture
def own_valkey(kind: Kind) -> Iterator[ValkeyServer]:
    """A dedicated server for this test."""
    with TemporaryDirectory(prefix="ingest-") as folder, kind.server(Path(folder) / "server") as server:
        yield server


@pytest.fixture
async def own_redis(own_valkey: ValkeyServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(own_valkey.url, driver_info=DRIVER_INFO) as client:
        yield client
