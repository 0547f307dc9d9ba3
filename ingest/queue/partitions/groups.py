"""Finds the consumer groups of a queue. Each has its own retries, dead letters and results."""

from contextlib import suppress
from typing import Any

from redis.asyncio import Redis

from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import NoGroup, translated


async def groups_of(client: Redis, queue: str, known: str) -> list[str]:
    """Return the names of all groups that read the queue, and of a known group, which may have no group in Redis yet."""
    names = {known}
    for lane in Keys.of(queue).lanes:
        try:
            with translated():
                found: Any = await client.xinfo_groups(lane.stream)
        except NoGroup:
            continue
        for group in found:
            # No setting can name a group whose name is not UTF-8. Such a group belongs to another program.
            with suppress(UnicodeDecodeError):
                names.add(group["name"].decode())
    return sorted(names)
