"""A process that fetches orders with a refresh token, and kills itself at a named moment: `python refresher.py MOMENT`, settings by environment.

It is assembled from the real parts except for the token store, which dies. For each order it writes a line.
"""

import asyncio
import os
import random
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import NoReturn

import msgspec

from ingest.domain.errors import TokenRefused
from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed
from ingest.domain.fetch.token_store import HeldStore, Stored, TokenStore
from ingest.settings import load_settings
from ingest.sources.from_settings import source_of
from ingest.telemetry.logs import setup_logs
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.upstream.client import UpstreamClient

MOMENT = sys.argv[1]


def die() -> NoReturn:
    """End by SIGKILL, without handlers or messages to servers."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("unreachable")


def meets(moment: str) -> None:
    if moment == MOMENT:
        die()


class Held:
    """Dies around the writes of the holder of the lock."""

    def __init__(self, held: HeldStore) -> None:
        self._held = held

    @property
    def stored(self) -> Stored:
        return self._held.stored

    async def mark(self, content: bytes) -> None:
        meets("before_mark")
        await self._held.mark(content)
        meets("after_mark")

    async def put(self, content: bytes) -> None:
        meets("before_put")
        if MOMENT == "during_put":
            putting = asyncio.create_task(self._held.put(content))
            await asyncio.wait([putting], timeout=random.uniform(0, 0.005))
            die()
        await self._held.put(content)
        meets("after_put")


class Store:
    """The store of the settings."""

    def __init__(self, store: TokenStore) -> None:
        self._store = store

    async def read(self) -> Stored:
        return await self._store.read()

    @asynccontextmanager
    async def lock(self) -> AsyncIterator[Held | None]:
        async with self._store.lock() as held:
            meets("locked" if held is not None else "")
            yield None if held is None else Held(held)


async def main() -> None:
    """Fetch orders until the moment comes."""
    settings = load_settings(upstream_oauth2_parameters=f"pid={os.getpid()}")
    setup_logs("json", "error")
    source = source_of(settings, {})
    access = source.endpoint.access
    assert access.oauth2 is not None
    assert access.oauth2.store is not None
    oauth2 = msgspec.structs.replace(access.oauth2, store=Store(access.oauth2.store))
    endpoint = msgspec.structs.replace(source.endpoint, access=msgspec.structs.replace(access, oauth2=oauth2))
    seconds = WorkerMetrics.on(worker_shared_metrics(1), 0).upstream_request
    async with UpstreamClient.open(endpoint, source.limits, seconds) as client:
        while True:
            fetched = await client.fetch(FetchRequest("1"))
            if isinstance(fetched, Failed) and isinstance(fetched.fault, TokenRefused):
                say(f"locked out: {fetched.fault}")
            elif not isinstance(fetched, Failed):
                say("fetched")
            await asyncio.sleep(0.05)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
