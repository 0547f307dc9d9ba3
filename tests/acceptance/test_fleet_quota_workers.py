"""Real `ingest worker` commands share one quota, as observed by the external API.

The number of requests within a second depends on the load of this machine. The bounds leave room for that and are still
far below the requests of commands without a quota.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator

import pytest
from acceptance.commands import Workers, closing_workers
from integration.scene import Scene, assert_right, ids
from support import Cli, becomes, eventually

from ingest.lab.servers import EmbeddedServers
from ingest.lab.upstream.stats import Stats

pytestmark = pytest.mark.long


@pytest.fixture
async def scene(own_servers: EmbeddedServers, queue_name: str) -> AsyncIterator[Scene]:
    """A scene on servers that may be stopped."""
    async with Scene.open_fragile(own_servers, queue_name) as scene:
        scene.api.behave(latency="0.1")
        yield scene


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    own = {
        "INGEST_REDIS_URL": scene.redis_url,
        "INGEST_POSTGRES_DSN": scene.dsn,
        "INGEST_UPSTREAM_URL": scene.api.url_template,
        "INGEST_CONCURRENCY": "50",
        "INGEST_HEARTBEAT_TTL": "2",
    }
    with closing_workers(cli, own) as workers:
        yield workers


async def requested(scene: Scene, count: int) -> None:
    """Wait until the API has seen this many requests."""

    await eventually(lambda: scene.api.stats().requests >= count, within=60.0)


async def test_two_commands_keep_to_one_rate_while_one_is_killed_and_redis_restarts(
    scene: Scene, workers: Workers, own_servers: EmbeddedServers
) -> None:
    order_ids = ids(800)
    await scene.enqueue(*order_ids)
    settings = {"processes": 2, "upstream_rate": 100}
    first, second = workers.start(**settings), workers.start(**settings)
    await requested(scene, 1)
    began = time.monotonic()

    await requested(scene, 250)
    first.ask_group(signal.SIGKILL)
    await requested(scene, 500)
    await asyncio.to_thread(own_servers.valkey.stop)
    await asyncio.to_thread(own_servers.valkey.start)
    await requested(scene, 800)
    took = time.monotonic() - began

    await scene.finished(within=60.0)
    assert scene.api.stats().busiest_second <= 130
    assert took >= 7.0
    assert await scene.dead() == []
    assert_right(await scene.rows(), order_ids)
    assert await second.stop() == 0


class Arrivals(Stats):
    """The counts of the simulated API, and when each request came in."""

    def __init__(self) -> None:
        super().__init__()
        self.times: list[float] = []

    def arrived(self, key: bytes, now: float) -> None:
        super().arrived(key, now)
        self.times.append(now)


async def test_one_refusal_with_retry_after_pauses_all_commands_and_no_order_is_to_blame(
    scene: Scene, workers: Workers
) -> None:
    order_ids, quota, window = ids(1_500), 100, 9.0
    scene.api._site.stats = arrivals = Arrivals()
    scene.api.behave(latency="1", quota=quota, quota_window=window)
    for _ in range(2):
        workers.start(processes=2)

    await becomes(lambda: scene.redis.zcard(scene.keys.alive), 4)
    await scene.enqueue(*order_ids)
    await eventually(lambda: scene.api.stats().by_status.get("429", 0))
    scene.api.behave(quota=0)  # later requests are not rejected
    await scene.finished(within=60.0)

    # Each process checks once per second whether another process has to wait.
    all_know, may_ask = arrivals.times[quota] + 4.0, arrivals.times[0] + window - 0.5
    assert [at for at in arrivals.times if all_know < at < may_ask] == []
    assert arrivals.times[-1] > may_ask, "there were orders left to ask for"
    assert await scene.dead() == []
    rows = await scene.rows()
    assert_right(rows, order_ids)
    assert {row["attempts"] for row in rows.values()} == {1}
