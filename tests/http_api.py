"""The HTTP API in this event loop, as in its processes, and a client."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import aiohttp
import pytest
from redis.asyncio import Redis
from shipped import as_api
from yarl import URL

from ingest.api.http.admitting import Admission
from ingest.api.http.routing import Caller
from ingest.domain.api_key import Scope
from ingest.flow.shutdown import Shutdown
from ingest.queue.layout.keys import Keys
from ingest.services.api import series_of, serving_api
from ingest.services.http.console import console_secret
from ingest.services.http.served_sources import ServedSources
from ingest.settings import load_settings
from ingest.telemetry.api_metrics import ApiMetrics

NOWHERE = "postgresql://127.0.0.1:1/none"


@dataclass(frozen=True, slots=True)
class Key:
    """Admits every request as this caller."""

    name: str

    def admit(self, headers: Mapping[str, str], scope: Scope, source: str | None) -> Caller:
        del headers, scope, source
        return Caller(self.name, frozenset(Scope))


@dataclass(frozen=True, slots=True)
class Api:
    """A running API.

    Attributes:
        url: URL of the API.
        http: a client.
        metrics: its counters.
    """

    url: str
    http: aiohttp.ClientSession
    metrics: ApiMetrics

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        """A connection for raw requests, for at most a minute."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            async with asyncio.timeout(60):
                yield reader, writer
        finally:
            writer.close()

    async def call(self, method: str, path: str, **options: Any) -> tuple[int, Any]:
        """The status and the JSON of a response."""
        async with self.http.request(method, URL(self.url + path, encoded=True), **options) as response:
            return response.status, await response.json(content_type=None)

    async def get(self, path: str) -> tuple[int, Any]:
        return await self.call("GET", path)

    async def pages(self, path: str, member: str) -> list[list[dict[str, Any]]]:
        """The pages of a list, to the last one."""
        found, cursor = [], ""
        while cursor is not None:
            status, page = await self.get(f"{path}{cursor and f'&cursor={cursor}'}")
            assert status == 200, page
            found.append(page[member])
            cursor = page["next_cursor"]
        return found

    async def post(self, path: str, **options: Any) -> tuple[int, Any]:
        return await self.call("POST", path, **options)


@asynccontextmanager
async def running_api(
    redis_url: str,
    dsn: str,
    queue: str,
    access: Admission | None = None,
    shutdown: Shutdown | None = None,
    **settings: Any,
) -> AsyncIterator[Api]:
    """An API on a free port."""
    effective = load_settings(redis_url=as_api(redis_url), postgres_dsn=as_api(dsn), stream=queue, **settings)
    sources = ServedSources.read(effective)
    metrics = series_of(effective, sources).of(0)
    shutdown = shutdown or Shutdown(5.0)
    scheme = "http" if effective.api_cert_file is None else "https"
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        serving = serving_api(effective, sources, metrics, listener, shutdown, access, console_secret(effective))
        async with serving, aiohttp.ClientSession() as http:
            try:
                yield Api(url, http, metrics)
            finally:
                shutdown.overdue.set()


async def queued(redis: Redis, queue: str, lane: str = "stream") -> list[dict[bytes, bytes]]:
    """The fields of the entries in a lane."""
    return [fields for _, fields in await redis.xrange(getattr(Keys.of(queue), lane))]


Serve = Callable[..., AbstractAsyncContextManager[Api]]


@pytest.fixture
def serve(redis_url: str, queue_name: str) -> Serve:
    """Runs an API without PostgreSQL, with the given settings."""
    return partial(running_api, redis_url, NOWHERE, queue_name)
