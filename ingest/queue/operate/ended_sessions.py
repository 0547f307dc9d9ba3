"""Records the ended sessions of the console in Redis, for all processes of `ingest api`.

A record is written before the response to the logout. It expires when the session would have expired.
"""

import hashlib
from datetime import timedelta

from redis.asyncio import Redis

from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import translating


class EndedSessions:
    """The ended sessions of one deployment.

    Methods raise `QueueUnavailable` when Redis cannot be used right now. The same call may then be repeated.

    Args:
        stream: the name of the queue of the unnamed source.
        lifetime: the longest time for which a session is valid.
    """

    def __init__(self, client: Redis, stream: str, lifetime: timedelta) -> None:
        self._client = client
        self._prefix = f"{Keys.of(stream).records}session:"
        self._lifetime = lifetime

    @translating
    async def add(self, session_id: str) -> None:
        """Record that a session has ended."""
        await self._client.set(self._key(session_id), "ended", ex=self._lifetime)

    @translating
    async def contains(self, session_id: str) -> bool:
        """Return whether a session has ended."""
        return bool(await self._client.exists(self._key(session_id)))

    def _key(self, session_id: str) -> str:
        return self._prefix + hashlib.sha256(session_id.encode()).hexdigest()
