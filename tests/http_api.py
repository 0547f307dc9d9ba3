"""The HTTP API in this event loop, as its processes run it, and a client of it."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from ingest.api.http.admitting import Admission
from ingest.flow.shutdown import Shutdown
from ingest.services.api import series_of, serving_api
from ingest.services.api_routes import webhook_sources
from ingest.settings import load_settings
from ingest.telemetry.api_metrics import ApiMetrics


@dataclass(frozen=True, slots=True)
class Api:
    """A running API.

    Attributes:
        url: of it.
        http: a client.
        metrics: what it has counted.
    """

    url: str
    http: aiohttp.ClientSession
    metrics: ApiMetrics

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def post(self, path: str, **options: Any) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        async with self.http.post(self.url + path, **options) as answer:
            return answer.status, await answer.json(content_type=None)


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
    effective = load_settings(redis_url=redis_url, postgres_dsn=dsn, stream=queue, **settings)
    webhooks = webhook_sources(effective)
    metrics = series_of(effective, webhooks).of(0)
    shutdown = shutdown or Shutdown(5.0)
    scheme = "http" if effective.api_cert_file is None else "https"
    with socket.create_server(("127.0.0.1", 0), backlog=4096) as listener:
        url = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        serving = serving_api(effective, metrics, listener, shutdown, access, webhooks)
        async with serving, aiohttp.ClientSession() as http:
            try:
                yield Api(url, http, metrics)
            finally:
                shutdown.overdue.set()
