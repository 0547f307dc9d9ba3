"""The quota of a simulated Shopify in points, shared by processes with a real Redis and a backlog.

`INGEST_TEST_SECONDS` sets how long the processes run.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path

import pytest
from fakes.workers import metrics

from ingest.domain.fetch.exchange import FetchRequest
from ingest.domain.fetch.result import Failed
from ingest.lab.shops.simulated_shop import SimulatedShop
from ingest.queue.consume.queue_connections import QueueConnections
from ingest.settings import load_settings
from ingest.settings.source_file import source_settings
from ingest.sources.from_settings import source_of
from ingest.sources.opening import fetching_by, open_quota
from ingest.sources.source import Source
from ingest.upstream.client import UpstreamClient
from ingest.upstream.conditions import Conditions
from ingest.upstream.session import utc_now

SECONDS = float(os.environ.get("INGEST_TEST_SECONDS", "8"))
PROCESSES = 3
RATE = 1_000.0


@asynccontextmanager
async def process(source: Source, redis_url: str) -> AsyncIterator[UpstreamClient]:
    """A client with its own connections, like the client of a worker process."""
    own = metrics()
    async with (
        QueueConnections.open(redis_url) as connections,
        open_quota(source, connections, own, utc_now, unexpected) as (_, quota),
        UpstreamClient.open(
            source.endpoint, source.limits, own.upstream_request, conditions=Conditions(quota)
        ) as client,
    ):
        assert quota is not None
        running = asyncio.create_task(quota.run())
        try:
            yield client
        finally:
            quota.close()
            running.cancel()
            await asyncio.wait([running])


def source_at(base_url: str, quota: str) -> Source:
    """A source of the kind, from a sources file in the current folder."""
    text = f"[sources.shop]\nkind = 'shopify'\nbase_url = '{base_url}'\ntoken = 'shpat_simulated'\n"
    Path("sources.toml").write_text(f"{text}upstream.quota = '{quota}'\n")
    return source_of(source_settings(load_settings(sources="sources.toml"))["shop"], {})


def unexpected(seconds: float) -> None:
    raise AssertionError(f"too few points, for {seconds:g} s")


@pytest.mark.timeout(60 + 2 * SECONDS)
async def test_processes_use_nearly_all_points_and_are_not_throttled(
    redis_url: str, queue_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with SimulatedShop("shopify", orders=300, seed=2, changes={"rate_limit": RATE, "latency": "0.1"}) as shop:
        source = source_at(shop.base_url, queue_name)
        ids = cycle(shop.kind.order_id(number) for number in range(1, 301))

        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(process(source, redis_url)) for _ in range(PROCESSES)]
            tasks = [asyncio.create_task(fetch_all(client, source, ids)) for client in clients for _ in range(20)]
            await asyncio.sleep(4.0)  # until the leases of a new quota are granted, and the cost is known
            used, began_at = shop.site.buckets["points"].used, time.monotonic()
            await asyncio.sleep(SECONDS)
            share = (shop.site.buckets["points"].used - used) / RATE / (time.monotonic() - began_at)
            for task in tasks:
                task.cancel()
            results = await asyncio.gather(*tasks, return_exceptions=True)

    assert all(isinstance(result, asyncio.CancelledError) for result in results), results
    assert shop.state.counts["throttled"] == 0
    assert share >= 0.9


async def fetch_all(client: UpstreamClient, source: Source, ids: "cycle[str]") -> None:
    async with fetching_by(client, source) as fetching:
        for order_id in ids:
            result = await fetching.upstream.fetch(FetchRequest(order_id))
            assert not isinstance(result, Failed), result.fault
