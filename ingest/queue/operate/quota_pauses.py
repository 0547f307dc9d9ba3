"""Reads how long the processes that share a quota pause, because the external API has asked them to wait."""

from collections.abc import Iterable, Mapping

from redis.asyncio import Redis

from ingest.queue.consume.quota import quota_key
from ingest.queue.redis.connection import translated, translating
from ingest.queue.redis.scripts import load

_ONLY_READ = 0


@translating
async def read_pauses(client: Redis, quotas: Iterable[str]) -> Mapping[str, float]:
    """Return the seconds until the end of the pause of each quota, by its name. 0 without a pause."""
    pause = load(client, "quota_pause")
    with translated():
        return {name: int(await pause([quota_key(name)], [_ONLY_READ])) / 1000 for name in dict.fromkeys(quotas)}
