"""The bare loop, which is the least code that an expert would write for the same job, without any safety.

It reads through a consumer group, fetches, decodes the same document, stores batches in the same table, acks and
deletes. It does not support retries, leases, reclaims, dead letters, versions, limits or metrics, and does not wait for
servers. One process holds all orders in flight. It only shares the order's type and the table's columns with the
service.

    python -m ingest.bench.pipeline.bare STREAM_KEY IN_FLIGHT
"""

import asyncio
import os
import signal
import ssl
import sys
from datetime import UTC, datetime
from typing import Any

import aiohttp
import asyncpg
import uvloop
from redis.asyncio import Redis

from ingest.domain.orders.order_row import OrderRow
from ingest.domain.orders.plain_order import decode_plain
from ingest.domain.source_name import UNNAMED
from ingest.store.orders.columns import COLUMNS, MADE, arguments, named

GROUP = "bare"
_MOST_AT_ONCE = 500

UPSERT = f"""
INSERT INTO orders ({named("{}")})
{MADE}
ON CONFLICT (source, order_id) DO UPDATE SET {named("{} = excluded.{}", COLUMNS[1:])}
"""


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
        self._fetched: dict[bytes, OrderRow] = {}
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
        # An entry ID begins with the time in ms at which the entry was added.
        added_at = int(entry_id.partition(b"-")[0]) / 1000
        self._fetched[entry_id] = OrderRow.of(decode_plain(body, order_id), asked_at, 1, added_at)
        self._some_fetched.set()

    async def _store_all(self) -> None:
        """Store in batches. Orders that are fetched while a batch is being stored form the next batch."""
        while True:
            await self._some_fetched.wait()
            self._some_fetched.clear()
            batch, self._fetched = self._fetched, {}
            await self._postgres.execute(UPSERT, UNNAMED, *arguments(list(batch.values())))
            async with self._redis.pipeline(transaction=False) as pipe:
                pipe.xack(self._stream, GROUP, *batch)
                pipe.xdel(self._stream, *batch)
                await pipe.execute()


async def _main(stream: str, in_flight: int) -> None:
    redis = Redis.from_url(os.environ["INGEST_REDIS_URL"], socket_timeout=None)
    postgres = await asyncpg.connect(os.environ["INGEST_POSTGRES_DSN"])
    ca_file = os.environ.get("INGEST_UPSTREAM_CA_FILE")
    connector = aiohttp.TCPConnector(limit=0, ssl=ssl.create_default_context(cafile=ca_file) if ca_file else True)
    async with redis, aiohttp.ClientSession(connector=connector) as http:
        loop = BareLoop(redis, postgres, http, stream, in_flight)
        work = asyncio.create_task(loop.run())
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, work.cancel)
        await asyncio.wait([work])
    await postgres.close()
    if not work.cancelled():
        work.result()


if __name__ == "__main__":
    uvloop.run(_main(sys.argv[1], int(sys.argv[2])))
