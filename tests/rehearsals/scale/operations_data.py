"""Fills the queues of several sources and the table of orders for measurements of pages, lists and operations."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import asyncpg
from redis.asyncio import Redis

from ingest.domain.source_name import queue_of
from ingest.queue.layout.keys import Keys

GROUP = "ingest"
SOURCES = ("shop-de", "shop-uk", "warehouse")
_AT_ONCE = 5_000

# As enqueue.lua writes them.
_ADD = """
for i = ARGV[1], ARGV[2] do
  redis.call('XADD', KEYS[1], '*', 'order_id', 'order-' .. i)
end
"""
# As reschedule.lua writes them. They are due in the next days, so that they stay where they are.
_SCHEDULE = """
local now = redis.call('TIME')[1] * 1000
local reasons = {'timeout', 'http_status', 'connection', 'throttled'}
local errors = {'no response within 30.0 s', 'HTTP 503', 'connection reset by 10.0.3.%d', 'HTTP 429: wait %d s'}
for i = ARGV[1], ARGV[2] do
  local id, kind = (now - 60000) .. '-' .. i, i % 4 + 1
  redis.call('HSET', KEYS[2], id, cmsgpack.pack({'order_id', 'retry-' .. i, 'enqueued_at', tostring(now - 3600000), 'attempt', '3',
    'reason', reasons[kind], 'error', string.format(errors[kind], i % 200)}))
  redis.call('ZADD', KEYS[1], now + 86400000 + i, id)
  redis.call('ZADD', KEYS[3], now - 3600000, id)
end
"""
# As dead_letter.lua writes them. Their errors have four shapes, with different numbers and times in each.
_DEAD_LETTER = """
local now = redis.call('TIME')[1] * 1000
local reasons = {'not_found', 'invalid_order', 'invalid_order', 'attempts_exhausted'}
local errors = {'HTTP 404', 'no value for currency - at $.total_price_set.shop_money.currency_code',
  'a total of %d.50 is no number - at $.lines[%d].price', 'no response within %d.0 s'}
for i = ARGV[1], ARGV[2] do
  local kind = i % 4 + 1
  redis.call('XADD', KEYS[1], '*', 'order_id', 'dead-' .. i, 'reason', reasons[kind], 'error',
    string.format(errors[kind], i % 97, i % 13), 'attempts', kind == 4 and '10' or '1', 'first_enqueued_at', tostring(now - 3600000),
    'worker', 'worker-1', 'dead_at', tostring(now - i % 3600000))
end
"""
_STORED = """
INSERT INTO orders (source, order_id, status, currency, placed_at, line_count, total, lines, version, fetched_at, attempts,
  enqueued_at, ingested_at, attributes)
SELECT $1, 'stored-' || i, (ARRAY['placed', 'shipped', 'cancelled'])[1 + i % 3], 'EUR', at, 1, 12.5,
  '[{"sku": "A", "quantity": 5, "description": null, "unit_price": "2.50"}]', at, at, 1, at, at,
  jsonb_build_object('channel', (ARRAY['web', 'app', 'phone'])[1 + i % 3], 'customer', 'c-' || i % 10000)
FROM (SELECT i, now() - i * interval '10 seconds' AS at FROM generate_series($2::int, $3::int) AS i) AS orders
"""


@dataclass(frozen=True, slots=True)
class DataSize:
    """The size of the data, over all sources.

    Attributes:
        queued: undelivered entries.
        retries: scheduled retries, which are not due.
        dead: dead letters.
        stored: rows in the table of orders.
    """

    queued: int
    retries: int
    dead: int
    stored: int


async def load(redis: Redis, dsn: str, stream: str, size: DataSize) -> None:
    """Load the data, divided equally among the sources."""
    await asyncio.gather(*(_load_queue(redis, Keys.of(queue_of(stream, name)), size) for name in SOURCES))
    connection = await asyncpg.connect(dsn)
    try:
        for name in SOURCES:
            for first, last in _batches(size.stored // len(SOURCES), 50_000):
                await connection.execute(_STORED, name, first, last)
        await connection.execute("ANALYZE orders")
    finally:
        await connection.close()


async def _load_queue(redis: Redis, keys: Keys, size: DataSize) -> None:
    await redis.xgroup_create(keys.stream, GROUP, id="0", mkstream=True)
    each = len(SOURCES)
    await _repeat(redis, _ADD, [keys.stream], size.queued // each)
    await _repeat(redis, _SCHEDULE, [keys.retry, keys.retry_entries, keys.retry_announced], size.retries // each)
    await _repeat(redis, _DEAD_LETTER, [keys.dead], size.dead // each)


async def _repeat(redis: Redis, script: str, names: list[str], count: int) -> None:
    loop = redis.register_script(script)
    for first, last in _batches(count, _AT_ONCE):
        await loop(names, [first, last])


def _batches(count: int, most: int) -> Sequence[tuple[int, int]]:
    return [(first, min(count, first + most - 1)) for first in range(1, count + 1, most)]
