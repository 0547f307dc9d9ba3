"""The scenes of tests: a queue, a database and an API of the test's own, on servers that are shared or may be stopped."""

from collections.abc import AsyncIterator

import pytest
from integration.scene import Scene

from ingest.lab.servers import EmbeddedServers


@pytest.fixture
async def scene(redis_url: str, dsn: str, queue_name: str) -> AsyncIterator[Scene]:
    async with Scene.open(redis_url, dsn, queue_name) as scene:
        yield scene


@pytest.fixture
async def fragile(own_servers: EmbeddedServers, queue_name: str) -> AsyncIterator[Scene]:
    """A scene on servers that may be stopped or killed."""
    async with Scene.open_fragile(own_servers, queue_name) as scene:
        yield scene
