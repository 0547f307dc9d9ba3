"""The ways to read an order: the only thing in which the compared servers differ."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import asyncpg
import msgspec
from psycopg_pool import ConnectionPool

from ingest.store.orders.columns import ORDER, named

Row = tuple[Any, ...]
Read = Callable[[str], Awaitable[Row | None]]
"""Reads the row of an order; None if there is none."""


KINDS = {
    "async_in_turn": "async pool (asyncpg), in turn",
    "async_plain": "async pool (asyncpg)",
    "threads": "threads, sync pool (psycopg)",
}
"""What each is, by the name of its function below."""

_SQL = f"SELECT {named('{}', ORDER[:-1])}, lines::text FROM orders WHERE order_id = "  # noqa: S608  our own names
_NAMES = [column.name for column in ORDER]


def open_reader(kind: str, dsn: str, size: int) -> AbstractAsyncContextManager[Read]:
    """A reader of that kind with up to `size` connections."""
    return {"async_in_turn": async_in_turn, "async_plain": async_plain, "threads": threads}[kind](dsn, size)


def encode(row: Row) -> bytes:
    """A row as JSON, money as text."""
    named = dict(zip(_NAMES, row, strict=True))
    return msgspec.json.encode(named | {"lines": msgspec.Raw(named["lines"])})


@asynccontextmanager
async def async_plain(dsn: str, size: int) -> AsyncIterator[Read]:
    """The event loop speaks to PostgreSQL itself, and waits in asyncpg's own pool."""
    query = f"{_SQL}$1"
    async with asyncpg.create_pool(dsn, min_size=size, max_size=size) as pool:

        async def read(order_id: str) -> Row | None:
            row = await pool.fetchrow(query, order_id)
            return None if row is None else tuple(row)

        yield read


@asynccontextmanager
async def async_in_turn(dsn: str, size: int) -> AsyncIterator[Read]:
    """Asyncpg's pool, but a request waits for its turn in a semaphore of the pool's size before it asks the pool.

    The pool lets a newcomer overtake waiting requests: a connection that is released wakes the first of them, but a
    request that asks before that one runs gets it; the first then waits again, behind all others (asyncpg 0.32, on
    `asyncio.Queue`). `asyncio.Semaphore` serves in order.
    """
    turns = asyncio.Semaphore(size)
    async with async_plain(dsn, size) as read_plain:

        async def read(order_id: str) -> Row | None:
            async with turns:
                return await read_plain(order_id)

        yield read


@asynccontextmanager
async def threads(dsn: str, size: int) -> AsyncIterator[Read]:
    """Threads speak to PostgreSQL: psycopg, one thread for each connection of its pool."""
    query = f"{_SQL}%s"
    # Without autocommit each read would be three round trips, for which asyncpg needs one.
    pool = ConnectionPool(dsn, min_size=size, max_size=size, kwargs={"autocommit": True}, open=False)
    with ThreadPoolExecutor(size, "read") as executor, pool:

        def fetch(order_id: str) -> Row | None:
            with pool.connection() as connection:
                return connection.execute(query, (order_id,)).fetchone()

        async def read(order_id: str) -> Row | None:
            return await asyncio.get_running_loop().run_in_executor(executor, fetch, order_id)

        yield read
