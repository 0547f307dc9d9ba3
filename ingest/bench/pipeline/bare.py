"""The bare loop: the least code that does the same job, as an expert would write it, without any safety.

It reads through a consumer group, fetches, decodes the same document, stores batches in the same table, acks and deletes.
It has no retries, leases, reclaims, dead letters, versions, limits or metrics, and does not wait for servers. One process has
everything in flight. It shares no code with the service but the order's type.

    python -m ingest.bench.pipeline.bare STREAM_KEY IN_FLIGHT
"""

import asyncio
import os
import signal
import sys
from datetime import UTC, datetime
from typing import Any

import aiohttp
import asyncpg
import uvloop
from redis.asyncio import Redis

from ingest.domain.order import Order, decode_order

GROUP = "bare"
_MOST_AT_ONCE = 500

_UPSERT = """
INSERT INTO orders (order_id, status, currency, customer_id, country, placed_at, updated_at, line_count, total, lines,
                    version, fetched_at, attempts, enqueued_at, ingested_at)
SELECT order_id, status, currency, customer_id, country, placed_at, updated_at, line_count, total, lines::jsonb,
       coalesce(updated_at, fetched_at), fetched_at, 1, enqueued_at, clock_timestamp()
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[],
            $8::integer[], $9::numeric[], $10::text[], $11::timestamptz[], $12::timestamptz[])
     AS t (order_id, status, currency, customer_id, country, placed_at, updated_at, line_count, total, lines,
           fetched_at, enqueued_at)
ON CONFLICT (order_id) DO UPDATE
SET status = excluded.status, currency = excluded.currency, customer_id = excluded.customer_id,
    country = excluded.country, placed_at = excluded.placed_at, updated_at = excluded.updated_at,
    line_count = excluded.line_count, total = excluded.total, lines = excluded.lines, version = excluded.version,
    fetched_at = excluded.fetched_at, attempts = excluded.attempts, enqueued_at = excluded.enqueued_at,
    ingested_at = excluded.ingested_at
"""

Fetched = tuple[bytes, Order, datetime]
"""The entry's ID, the order, and when it was requested."""


class BareLoop:
    """One consumer with at most `in_flight` orders in flight."""

    def __init__(self, redis: Redis, postgres: asyncpg.Connection, http: Any, stream: str, in_flight: int) -> None:
        self._redis = redis
        self._postgres = postgres
        self._http = http
        self._url = os.environ["INGEST_UPSTREAM_URL"]
        self._stream = stream
        self._free = in_flight
        self._freed = asyncio.Event()
        self._fetched: list[Fetched] = []
        self._some_fetched = asyncio.Event()

    async def run(self) -> None:
        """Work until cancelled."""
        await self._redis.xgroup_create(self._stream, GROUP, "0", mkstream=True)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store_all())
            while True:
                while not self._free:
                    self._freed.clear()
                    await self._freed.wait()
                for entry_id, fields in await self._read(min(self._free, _MOST_AT_ONCE)):
                    self._free -= 1
                    tasks.create_task(self._fetch(entry_id, fields[b"order_id"].decode()))

    async def _read(self, count: int) -> list[Any]:
        reply: Any = await self._redis.xreadgroup(GROUP, "bare", {self._stream: ">"}, count=count, block=1000)
        if isinstance(reply, dict):
            reply = [(key, *entries) for key, entries in reply.items()]
        return list(reply[0][1]) if reply else []

    async def _fetch(self, entry_id: bytes, order_id: str) -> None:
        asked_at = datetime.now(UTC)
        async with self._http.get(self._url.replace("{order_id}", order_id)) as response:
            response.raise_for_status()
            body = await response.read()
        self._free += 1
        self._freed.set()
        self._fetched.append((entry_id, decode_order(body, order_id), asked_at))
        self._some_fetched.set()

    async def _store_all(self) -> None:
        """Store in batches: what was fetched while one was being stored is the next one."""
        while True:
            await self._some_fetched.wait()
            self._some_fetched.clear()
            batch, self._fetched = self._fetched, []
            await self._postgres.execute(_UPSERT, *_columns(batch))
            ids = [entry_id for entry_id, _, _ in batch]
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.xack(self._stream, GROUP, *ids)
                pipe.xdel(self._stream, *ids)
                await pipe.execute()


def _columns(batch: list[Fetched]) -> list[list[Any]]:
    orders = [order for _, order, _ in batch]
    return [
        [order.id for order in orders],
        [order.status for order in orders],
        [order.currency for order in orders],
        [order.customer_id for order in orders],
        [order.country for order in orders],
        [order.placed_at for order in orders],
        [order.updated_at for order in orders],
        [len(order.lines) for order in orders],
        [order.total for order in orders],
        [order.lines_json().decode() for order in orders],
        [fetched_at for _, _, fetched_at in batch],
        # An entry's ID begins with the time, in ms, at which it was added.
        [datetime.fromtimestamp(int(entry_id.partition(b"-")[0]) / 1000, UTC) for entry_id, _, _ in batch],
    ]


async def _main(stream: str, in_flight: int) -> None:
    redis = Redis.from_url(os.environ["INGEST_REDIS_URL"], socket_timeout=None)
    postgres = await asyncpg.connect(os.environ["INGEST_POSTGRES_DSN"])
    async with redis, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as http:
        loop = BareLoop(redis, postgres, http, stream, in_flight)
        work = asyncio.create_task(loop.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
        await asyncio.wait([work])
    await postgres.close()
    if not work.cancelled():
        work.result()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2])))
