"""Connections to PostgreSQL that several sources share."""

import asyncio
import time

import pytest
from support import connected

from ingest.domain.errors import StoreUnavailable
from ingest.store.connections.pool import Pool, SourceConnection


async def seconds_of(source: SourceConnection, statement: str = "SELECT 1") -> float:
    started_at = time.monotonic()
    await source.fetch(statement)
    return time.monotonic() - started_at


async def count(dsn: str) -> int:
    """How many connections the sources have."""
    async with connected(dsn) as connection:
        query = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        return int(await connection.fetchval(query))


async def test_one_source_uses_one_connection_and_many_use_four(dsn: str) -> None:
    async with Pool.open_for_batches(dsn) as shared:
        sources = [shared.of_source() for _ in range(10)]
        await asyncio.gather(*(sources[0].fetch("SELECT pg_sleep(0.05)") for _ in range(3)))
        of_one = await count(dsn)

        await asyncio.gather(*(source.fetch("SELECT pg_sleep(0.05)") for source in sources))

        assert (of_one, await count(dsn)) == (1, 4)


async def test_sources_with_slow_statements_leave_connections_to_the_others(dsn: str) -> None:
    async with Pool.open_for_batches(dsn) as shared:
        slow, fast = [shared.of_source() for _ in range(6)], shared.of_source()
        for _ in range(2):
            waiting = [asyncio.create_task(source.fetch("SELECT pg_sleep(0.6)")) for source in slow]
            await asyncio.sleep(0.05)
            seconds = await seconds_of(fast)
            await asyncio.gather(*waiting)

    assert seconds < 0.3, "in the second round they are known to be slow"


async def test_a_cancelled_statement_gives_its_place_to_the_next_one(dsn: str) -> None:
    async with Pool.open_for_batches(dsn) as shared:
        busy = [asyncio.create_task(shared.of_source().fetch("SELECT pg_sleep(30)")) for _ in range(4)]
        await asyncio.sleep(0.05)
        waiting = [asyncio.create_task(shared.of_source().fetch("SELECT 1")) for _ in range(2)]
        await asyncio.sleep(0.05)

        waiting[0].cancel()
        busy[0].cancel()

        async with asyncio.timeout(5):
            await waiting[1]
        for task in busy:
            task.cancel()
        await asyncio.wait(busy)


async def test_a_failed_statement_gives_its_connection_back(dsn: str) -> None:
    async with Pool.open_for_batches(dsn) as shared:
        for _ in range(6):
            with pytest.raises(StoreUnavailable):
                await shared.of_source().fetch("SELECT * FROM nowhere")

        async with asyncio.timeout(5):
            await shared.of_source().fetch("SELECT 1")
