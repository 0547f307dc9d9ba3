"""For the contract tests: a raw client beside ours, and servers that a test may stop, fill or spoil."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from redis.asyncio import Redis

from ingest.demo.servers import ValkeyServer
from ingest.queue.keys import Keys


@pytest.fixture
def keys(queue_name: str) -> Keys:
    return Keys.of(queue_name)


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url) as client:
        yield client


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    """A server for this test alone."""
    with TemporaryDirectory(prefix="ingest-") as folder, ValkeyServer(Path(folder) / "valkey") as server:
        yield server


@pytest.fixture
async def own_redis(own_valkey: ValkeyServer) -> AsyncIterator[Redis]:
    async with Redis.from_url(own_valkey.url) as client:
        yield client
