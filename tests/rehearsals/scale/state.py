"""Fills a queue quickly, with loops in Redis and bulk reads."""

from dataclasses import dataclass

from redis.asyncio import Redis

from ingest.queue.layout.keys import Keys

GROUP = "ingest"
_AT_ONCE = 10_000
_HOUR = 3_600_000

# As enqueue.lua writes them.
_ADD = """
for i = ARGV[1], ARGV[2] do
  redis.call('XADD', KEYS[1], '*', 'order_id', 'order-' .. i)
end
"""
# As reschedule.lua writes them, all of them due.
_SCHEDULE = """
for i = ARGV[1], ARGV[2] do
  local id = '1700000000000-' .. i
  redis.call('HSET', KEYS[2], id, cmsgpack.pack({'order_id', 'retry-' .. i, 'enqueued_at', '1700000000000', 'attempt', '3'}))
  redis.call('ZADD', KEYS[1], 1700000000000 + i, id)
end
"""
# As dead_letter.lua writes them.
_BURY = """
for i = ARGV[1], ARGV[2] do
  redis.call('XADD', KEYS[1], '*', 'order_id', 'dead-' .. i, 'reason', 'not_found', 'error', 'HTTP 404', 'attempts', '1',
    'first_enqueued_at', '1700000000000', 'worker', 'worker-1', 'dead_at', '1700000001000')
end
"""


@dataclass(frozen=True, slots=True)
class Size:
    """The size of a queue.

    Attributes:
        queued: undelivered entries.
        retries: scheduled retries, all of which are due.
        dead: dead letters.
        pending: pending entries of live consumers.
        consumers: number of live consumers.
    """

    queued: int
    retries: int
    dead: int
    pending: int
    consumers: int


async def fill(redis: Redis, keys: Keys, size: Size) -> None:
    """Make a queue of that size, with its group."""
    await redis.xgroup_create(keys.stream, GROUP, id="0", mkstream=True)
    await _repeat(redis, _ADD, [keys.stream], size.queued + size.pending)
    await _repeat(redis, _SCHEDULE, [keys.retry, keys.retry_entries], size.retries)
    await _repeat(redis, _BURY, [keys.dead], size.dead)
    await hold(redis, keys, [f"busy-{number}" for number in range(size.consumers)], size.pending)


async def add(redis: Redis, keys: Keys, count: int) -> None:
    """Add undelivered entries."""
    await _repeat(redis, _ADD, [keys.stream], count)


async def hold(redis: Redis, keys: Keys, names: list[str], entries: int) -> None:
    """Let consumers with heartbeats have been given the next entries, each the same number."""
    seconds, _ = await redis.time()
    async with redis.pipeline(transaction=False) as pipe:
        for name in names:
            pipe.xreadgroup(GROUP, name, {keys.stream: ">"}, count=max(1, entries // len(names)))
        pipe.zadd(keys.alive, dict.fromkeys(names, seconds * 1000 + _HOUR))
        pipe.zadd(keys.standing, dict.fromkeys(names, seconds * 1000))
        await pipe.execute()


async def fall_silent(redis: Redis, keys: Keys, names: list[str]) -> None:
    """Let the heartbeats of consumers have ended."""
    await redis.zadd(keys.alive, dict.fromkeys(names, 1.0))


async def _repeat(redis: Redis, script: str, names: list[str], count: int) -> None:
    loop = redis.register_script(script)
    for first in range(1, count + 1, _AT_ONCE):
        await loop(names, [first, min(count, first + _AT_ONCE - 1)])
