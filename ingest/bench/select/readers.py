"""The ways to read an order, which are the only difference between the compared servers."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any

import asyncpg
import msgspec
from psycopg_pool import ConnectionPool

from ingest.store.orders.columns import ORDER, named

Row = tuple[Any, ...]
Read = Callable[[str], Awaitable[Row | None]]
"""Reads the row of an order, or None if it does not exist."""

Fetch = Callable[[str], Row | None]

_SQL = f"SELECT {named('{}', ORDER[:-1])}, lines::text FROM orders WHERE order_id = "  # noqa: S608  our own names
_NAMES = [column.name for column in ORDER]


def open_reader(kind: str, dsn: str, size: int) -> AbstractAsyncContextManager[Read]:
    """A reader of this kind with up to `size` connections."""
    readers = {
        "async_in_turn": async_in_turn,
        "async_plain": async_plain,
        "threads": threads,
        "wrapped": wrapped,
        "blocking": blocking,
    }
    return readers[kind](dsn, size)


def encode(row: Row) -> bytes:
    """A row as JSON, with money as text."""
    named = dict(zip(_NAMES, row, strict=True))
    return msgspec.json.encode(named | {"lines": msgspec.Raw(named["lines"])})


@asynccontextmanager
async def async_plain(dsn: str, size: int) -> AsyncIterator[Read]:
    """Read in the event loop with asyncpg's own pool."""
    query = f"{_SQL}$1"
    async with asyncpg.create_pool(dsn, min_size=size, max_size=size) as pool:

        async def read(order_id: str) -> Row | None:
            row = await pool.fetchrow(query, order_id)
            return None if row is None else tuple(row)

        yield read


@asynccontextmanager
async def async_in_turn(dsn: str, size: int) -> AsyncIterator[Read]:
    """Read with asyncpg's pool behind a semaphore of the pool's size, in which requests wait in turn.

    In the pool, a new request can overtake waiting ones. A released connection wakes the first waiting request, but a
    request that acquires a connection before the first one runs gets it. The first one then waits again behind all
    others (asyncpg 0.32, on `asyncio.Queue`). `asyncio.Semaphore` serves in order.
    """
    turns = asyncio.Semaphore(size)
    async with async_plain(dsn, size) as read_plain:

        async def read(order_id: str) -> Row | None:
            async with turns:
                return await read_plain(order_id)

        yield read


@asynccontextmanager
async def threads(dsn: str, size: int) -> AsyncIterator[Read]:
    """Read in threads with psycopg, with one thread for each connection of its pool."""
    with _sync_pool(dsn, size) as fetch:
        async with _in_threads(size, fetch) as read:
            yield read


@asynccontextmanager
async def wrapped(dsn: str, size: int) -> AsyncIterator[Read]:
    """Read in threads with an asynchronous function that `asyncio.run` wraps.

    The event loop ends with each call. A pool of asyncpg belongs to one event loop, so each call connects.
    """
    query = f"{_SQL}$1"

    async def fetch(order_id: str) -> Row | None:
        connection = await asyncpg.connect(dsn)
        try:
            row = await connection.fetchrow(query, order_id)
        finally:
            await connection.close()
        return None if row is None else tuple(row)

    async with _in_threads(size, lambda order_id: asyncio.run(fetch(order_id))) as read:
        yield read


@asynccontextmanager
async def blocking(dsn: str, size: int) -> AsyncIterator[Read]:
    """Read with psycopg in the event loop, which waits for each response of PostgreSQL."""
    with _sync_pool(dsn, size) as fetch:

        async def read(order_id: str) -> Row | None:
            return fetch(order_id)

        yield read


@contextmanager
def _sync_pool(dsn: str, size: int) -> Iterator[Fetch]:
    query = f"{_SQL}%s"
    # Without autocommit, each read would need three round trips, while asyncpg needs one.
    with ConnectionPool(dsn, min_size=size, max_size=size, kwargs={"autocommit": True}, open=False) as pool:

        def fetch(order_id: str) -> Row | None:
            with pool.connection() as connection:
                return connection.execute(query, (order_id,)).fetchone()

        yield fetch


@asynccontextmanager
async def _in_threads(size: int, fetch: Fetch) -> AsyncIterator[Read]:
    with ThreadPoolExecutor(size, "read") as executor:

        async def read(order_id: str) -> Row | None:
            return await asyncio.get_running_loop().run_in_executor(executor, fetch, order_id)

        yield read
