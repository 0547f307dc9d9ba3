"""Provides tests of the queue's cost with a dedicated server of each kind of Redis."""

from collections.abc import AsyncIterator

import pytest
from contract.conftest import keys, kind, own_valkey
from redis.asyncio import Redis

from ingest.lab.servers import ValkeyServer

__all__ = ["keys", "kind", "own_valkey"]


@pytest.fixture
def redis_url(own_valkey: ValkeyServer) -> str:
    return own_valkey.url


@pytest.fixture
async def redis(redis_url: str) -> AsyncIterator[Redis]:
    async with Redis.from_url(redis_url, socket_timeout=60) as client:
        yield client
