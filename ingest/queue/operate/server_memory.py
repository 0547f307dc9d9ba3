"""Reads how much memory a Redis server uses."""

from dataclasses import dataclass

from redis.asyncio import Redis

from ingest.queue.redis.connection import QueueRefused, translated
from ingest.queue.redis.routed_client import RoutedClient

_NEARLY_FULL = 0.9


@dataclass(frozen=True, slots=True)
class ServerMemory:
    """The memory of one server.

    Attributes:
        used: bytes.
        limit: `maxmemory` in bytes, or 0 without a limit.
    """

    used: int
    limit: int

    @property
    def share(self) -> float:
        """The used share of the limit, or 0 without a limit."""
        return self.used / self.limit if self.limit else 0.0

    @property
    def is_full(self) -> bool:
        """Whether Redis rejects commands that need memory."""
        return self.share >= 1.0

    @property
    def is_nearly_full(self) -> bool:
        """Whether more than 90 % of the limit is used."""
        return self.share > _NEARLY_FULL


async def read_memory(client: Redis) -> ServerMemory | None:
    """Read the memory of the server with one command. None if the server does not report it, and for a cluster.

    Raises:
        QueueUnavailable: Redis cannot be used right now.
    """
    if isinstance(client, RoutedClient):
        return None
    try:
        with translated():
            found = await client.info("memory")
    except QueueRefused:
        return None
    used, limit = found.get("used_memory"), found.get("maxmemory")
    return ServerMemory(int(used), int(limit)) if used is not None and limit is not None else None
