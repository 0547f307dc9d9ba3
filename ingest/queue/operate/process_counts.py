"""Reads the counts that worker processes report, see `ingest.queue.consume.count_reports`."""

from collections.abc import Sequence

import msgspec
from redis.asyncio import Redis

from ingest.domain.operating.process_counts import ProcessCounts
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import replies, translating


@translating
async def read_counts(
    client: Redis, group: str, consumers: Sequence[tuple[str, str]]
) -> dict[tuple[str, str], ProcessCounts]:
    """Return the counts of consumers in one round trip.

    Args:
        client: the commands are sent by it.
        group: the consumer group.
        consumers: pairs of a queue's name and a consumer's name. Those without counts are omitted.
    """
    if not consumers:
        return {}
    async with client.pipeline(transaction=False) as pipe:
        for queue, consumer in consumers:
            pipe.get(Keys.of(queue, group).counts + consumer)
        found = await replies(pipe)
    decoded = {each: _decoded(raw) for each, raw in zip(consumers, found, strict=True)}
    return {each: counts for each, counts in decoded.items() if counts is not None}


def _decoded(raw: bytes | None) -> ProcessCounts | None:
    """The counts, or None if there are none that this release can read."""
    try:
        return msgspec.json.decode(raw, type=ProcessCounts) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
