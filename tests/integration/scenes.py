"""The scenes of tests: a queue, a database and an API of the test's own, on servers that are shared or may be stopped."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from integration.scene import Scene
from redis.asyncio import Redis
from servers.kinds import KINDS, Kind
from shipped import as_account, as_admin

from ingest.lab.servers import EmbeddedServers
from ingest.queue.redis.connection import control_client

on_each_redis = pytest.mark.parametrize("redis_url", KINDS, ids=[kind.name for kind in KINDS], indirect=True)


@pytest.fixture
def redis_url(request: pytest.FixtureRequest, servers: EmbeddedServers) -> Iterator[str]:
    """The embedded server, or one of the kind that a test names by `indirect`."""
    kind: Kind | None = getattr(request, "param", None)
    if kind is None:
        yield as_account(servers.redis_url, "ingest")
        return
    with TemporaryDirectory(prefix="ingest-") as folder, kind.server(Path(folder) / "server") as server:
        yield as_account(server.url, "ingest")


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with control_client(as_admin(redis_url)) as client:
        yield client


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


@pytest.fixture
async def fragile(own_servers: EmbeddedServers, queue_name: str) -> AsyncIterator[Scene]:
    """A scene on servers that may be stopped or killed."""
    async with Scene.open_fragile(own_servers, queue_name) as scene:
        yield scene
