"""The ways to read, a module each: the only thing in which the compared servers differ."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

KINDS = {
    "async_in_turn": "async pool (asyncpg), in turn",
    "async_plain": "async pool (asyncpg)",
    "threads": "threads, sync pool (psycopg)",
}
"""What each is, by its module's name."""

SQL = """
SELECT order_id, status, currency, customer_id, country, placed_at, updated_at, line_count, total, lines::text
FROM orders WHERE order_id = $1
"""

_NAMES = (
    "order_id", "status", "currency", "customer_id", "country", "placed_at", "updated_at", "line_count", "total", "lines",
)  # fmt: skip


class Reader(Protocol):
    """Reads one order."""

    async def read(self, order_id: str) -> tuple[Any, ...] | None:
        """Its row; None if there is none."""


class _Module(Protocol):
    def open_reader(self, dsn: str, size: int) -> AbstractAsyncContextManager[Reader]: ...


def open_reader(kind: str, dsn: str, size: int) -> AbstractAsyncContextManager[Reader]:
    """A reader of that kind with up to `size` connections; only its module is imported."""
    return cast("_Module", import_module(f"{__name__}.{kind}")).open_reader(dsn, size)


def encode(row: tuple[Any, ...]) -> bytes:
    """A row as JSON, money as text."""
    named = dict(zip(_NAMES, row, strict=True))
    return msgspec.json.encode(named | {"lines": msgspec.Raw(named["lines"])})
