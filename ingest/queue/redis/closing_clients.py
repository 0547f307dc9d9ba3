"""Closes redis-py's clients and pools even if the task that closes them is cancelled.

redis-py waits first, and then closes each connection in its own task. A cancellation leaves connections open, for as long as the process runs.
"""

from redis.asyncio import ConnectionPool, Redis


class ClosingPool(ConnectionPool):
    """A pool that closes its connections without waiting."""

    async def disconnect(self, inuse_connections: bool = True) -> None:  # noqa: FBT001, FBT002  redis-py's own
        """Close all connections, or the unused ones. Unsent data is dropped."""
        used = self._get_in_use_connections() if inuse_connections else ()
        for connection in (*self._get_free_connections(), *used):
            await connection.disconnect(nowait=True)


class ClosingClient(Redis):
    """A client with such a pool, closed at the end of its `async with` block."""

    async def __aexit__(self, *error: object) -> None:
        """Close it."""
        await self.aclose()
