"""For the contract tests: each kind of Redis there is, a raw client beside ours, and servers that a test may stop, fill
or spoil."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from cluster_set import ClusterSet
from consumers import Consumer
from contract.heartbeating import connect
from redis import DriverInfo
from redis.asyncio import Redis
from servers.kinds import KINDS, Kind

from ingest.lab.servers import ValkeyServer
from ingest.queue.layout.keys import Keys

# redis-py would parse the metadata of its package for every connection.
DRIVER_INFO = DriverInfo()


@pytest.fixture(params=KINDS, ids=[kind.name for kind in KINDS])
def kind(request: pytest.FixtureRequest) -> Kind:
    """What the test runs on: a test that uses a Redis is run on each kind of it."""
    return request.param


@pytest.fixture(scope="session")
def shared_server() -> Iterator[Callable[[Kind], ValkeyServer]]:
    """One server of each kind for all tests, started when it is first asked for."""
    with ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory(prefix="ingest-")))
        yield cache(lambda kind: running.enter_context(kind.server(folder / kind.name)))


@pytest.fixture(scope="session")
def shared_cluster() -> Iterator[Callable[[Kind], ClusterSet]]:
    """One cluster of each kind for all tests that leave it as it is, started when it is first asked for."""
    with ExitStack() as running:
        folder = Path(running.enter_context(TemporaryDirectory(prefix="ingest-")))

        def start(kind: Kind) -> ClusterSet:
            cluster = running.enter_context(ClusterSet.open(kind, folder))
            asyncio.run(cluster.become_ready())
            return cluster

        yield cache(start)


@pytest.fixture
def redis_url(kind: Kind, shared_server: Callable[[Kind], ValkeyServer]) -> str:
    return shared_server(kind).url


@pytest.fixture
def keys(queue_name: str) -> Keys:
    return Keys.of(queue_name)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, driver_info=DRIVER_INFO) as client:
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
