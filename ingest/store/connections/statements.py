"""The methods of a connection that stores need."""

from typing import Any, Protocol

import asyncpg


class Fetches(Protocol):
    """Runs statements, each in its own transaction, as `Pool` and `Statements` do."""

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement, and return its rows."""


class Statements(Protocol):
    """Runs statements, each in its own transaction. `Reconnecting` has the contract of each method."""

    async def fetch(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement, and return its rows."""

    async def fetch_unlocked(self, tables: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement that waits for the tables' locks, but not for locked rows."""

    async def fetch_rolled_back(self, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        """Run a statement, and roll it back."""
