"""The connections by which a long-running process finds, lists and erases orders of all sources."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from redis.asyncio import Redis

from ingest.queue.redis.connection import control_client
from ingest.store.connections.pool import Pool

_LIST_TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class OrderConnections:
    """The connections of `Orders`, which all sources share.

    Attributes:
        client: searches queues.
        pool: for short statements.
        lists: for statements that may take long.
        erasing: limits concurrent erasures, which may wait for locks, so that the pool has connections for others.
    """

    client: Redis
    pool: Pool
    lists: Pool
    erasing: asyncio.Semaphore

    @classmethod
    @asynccontextmanager
    async def open(cls, redis_url: str, postgres_dsn: str) -> AsyncIterator[Self]:
        """Open the connections, which are established on first use."""
        async with (
            control_client(redis_url) as client,
            Pool.open(postgres_dsn, size=4) as pool,
            Pool.open(postgres_dsn, size=4, timeout=_LIST_TIMEOUT) as lists,
        ):
            yield cls(client, pool, lists, asyncio.Semaphore(2))
