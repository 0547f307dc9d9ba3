"""Describes the remaining queue if a run's queue does not become empty, to find the cause."""

from pprint import pformat

from redis.asyncio import Redis

from chaos.stage import GROUP
from ingest.queue.layout.keys import Keys

_MOST = 50


async def left(redis: Redis, keys: Keys) -> str:
    """The streams, consumers, pending entries and retries of a queue, as Python writes them."""
    found = {
        "lanes": {
            lane.stream: {
                "groups": await redis.xinfo_groups(lane.stream),
                "consumers": await redis.xinfo_consumers(lane.stream, GROUP),
                "pending": await redis.xpending_range(lane.stream, GROUP, "-", "+", _MOST),
                "entries": await redis.xrange(lane.stream, count=_MOST),
            }
            for lane in keys.lanes
        },
        "time": await redis.time(),
        "retry": await redis.zrange(keys.retry, 0, _MOST, withscores=True),
        "keys": {key: await redis.type(key) async for key in redis.scan_iter("ingest:*", count=1000)},
    }
    return pformat(found, sort_dicts=False, width=120)
