"""When a network silently drops connections, stalls, or resets them, the worker continues, and no order is lost."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from urllib.parse import urlsplit, urlunsplit

import pytest
from integration.scene import RunningWorker, Scene, assert_right, ids
from proxy import Proxy
from support import eventually

from ingest.queue.redis.connection import COMMAND_TIMEOUT as REDIS_TIMEOUT
from ingest.store.connections.connection import BATCH_TIMEOUT

pytestmark = pytest.mark.long

ORDERS = ids(300)
# A busy machine's share of it.
SLACK = 10.0


class Network(Proxy):
    """A proxy that can also lose its connections as a firewall does that has forgotten them."""

    def strand(self) -> int:
        """Silently stop forwarding on all open connections, and return their number. New connections work."""
        return int(self._do(self._strand()))

    async def _strand(self) -> int:
        for writer in self._open:
            writer.transport.pause_reading()  # type: ignore[attr-defined]  # every socket's transport has it
        return len(self._handlers)


@dataclass(frozen=True)
class Networks:
    """The ways from the worker to each server."""

    redis: Network
    postgres: Network
    api: Network


@pytest.fixture
def networks(scene: Scene) -> Iterator[Networks]:
    with ExitStack() as stack:
        urls = (scene.redis_url, scene.dsn, scene.api.base_url)
        yield Networks(*(stack.enter_context(Network(urlsplit(url).port or 0)) for url in urls))


@pytest.fixture
def far(scene: Scene, networks: Networks) -> Scene:
    """The same scene, in which workers reach the servers through the networks, and tests directly."""
    return Scene(
        scene.redis,
        through(networks.redis, scene.redis_url),
        through(networks.postgres, scene.dsn),
        scene.queue,
        scene.api,
    )


def through(network: Network, url: str) -> str:
    """The URL of a server, by way of a network."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{account}{at}127.0.0.1:{network.port}"))


def upstream(scene: Scene, networks: Networks) -> str:
    return through(networks.api, scene.api.url_template)


async def all_right(scene: Scene, within: float, order_ids: list[str] = ORDERS) -> None:
    await scene.finished(within=within)
    assert await scene.dead() == []
    assert_right(await scene.rows(), order_ids)


async def nothing_was_blamed(scene: Scene) -> None:
    assert {row["attempts"] for row in (await scene.rows()).values()} == {1}


async def test_redis_connections_that_are_forgotten_in_mid_run_are_replaced(
    scene: Scene, far: Scene, networks: Networks
) -> None:
    scene.api.behave(latency="0.05")
    await scene.enqueue(*ORDERS)

    async with far.worker(heartbeat_ttl=6.0):
        await scene.stored_at_least(50)
        assert networks.redis.strand() >= 2

        # The blocking read may take one more second.
        await all_right(scene, REDIS_TIMEOUT + 1.0 + SLACK)

    await nothing_was_blamed(scene)


async def test_what_redis_hands_out_on_a_forgotten_connection_is_found(
    scene: Scene, far: Scene, networks: Networks
) -> None:
    async with far.worker(claim_idle=3600, heartbeat_ttl=3600.0) as worker:
        await scene.enqueue("first")
        await scene.finished()

        async def is_waiting() -> bool:
            return any(
                client["cmd"] == "xreadgroup" and "b" in client["flags"] for client in await scene.redis.client_list()
            )

        await eventually(is_waiting)
        networks.redis.strand()
        await scene.enqueue(*ORDERS[:5])

        await all_right(scene, REDIS_TIMEOUT + 1.0 + SLACK, ["first", *ORDERS[:5]])
        assert worker.metric("ingest_redeliveries_total", reason="restart") <= 5
    await nothing_was_blamed(scene)


async def test_postgresql_connections_that_are_forgotten_in_mid_run_are_replaced(
    scene: Scene, far: Scene, networks: Networks
) -> None:
    scene.api.behave(latency="0.05")
    await scene.enqueue(*ORDERS)

    async with far.worker(batch_rows=20) as worker:
        await scene.stored_at_least(50)
        assert networks.postgres.strand() >= 1

        await all_right(scene, BATCH_TIMEOUT + SLACK)

        assert worker.metric("ingest_circuit_open") == 0
    await nothing_was_blamed(scene)
    assert scene.api.stats().requests == len(ORDERS)


async def test_connections_to_the_api_that_are_forgotten_in_mid_run_are_replaced(
    scene: Scene, far: Scene, networks: Networks
) -> None:
    scene.api.behave(latency="0.05")
    await scene.enqueue(*ORDERS)

    async with far.worker(upstream_url=upstream(scene, networks), upstream_timeout=3, upstream_tries=3):
        await scene.stored_at_least(50)
        assert networks.api.strand() >= 10

        await all_right(scene, 3 * 3 + SLACK)


@pytest.mark.parametrize("server", ["redis", "postgres", "api"])
async def test_a_network_that_stalls_for_longer_than_every_timeout_costs_nothing(
    scene: Scene, far: Scene, networks: Networks, server: str
) -> None:
    scene.api.behave(latency="0.05")
    await scene.enqueue(*ORDERS)
    network: Network = getattr(networks, server)
    # Longer than the timeouts of Redis and the API, the heartbeat and the lease. A batch takes slightly longer.
    stalls = 8.0

    async with far.worker(upstream_url=upstream(scene, networks), upstream_timeout=2, batch_rows=20, claim_idle=3):
        await scene.stored_at_least(50)
        network.freeze()
        until = time.monotonic() + stalls

        await eventually(lambda: time.monotonic() > until)
        network.thaw()

        await all_right(scene, BATCH_TIMEOUT + SLACK)


@pytest.mark.parametrize("server", ["redis", "postgres", "api"])
async def test_connections_broken_again_and_again_cost_nothing(
    scene: Scene, far: Scene, networks: Networks, server: str
) -> None:
    scene.api.behave(latency="0.02")
    await scene.enqueue(*ORDERS)
    network: Network = getattr(networks, server)

    async with (
        far.worker("a", upstream_url=upstream(scene, networks), concurrency=5) as a,
        far.worker("b", upstream_url=upstream(scene, networks), concurrency=5) as b,
    ):

        async def broken_until_finished() -> bool:
            network.cut()
            return await scene.stored() >= len(ORDERS) - 100

        await eventually(broken_until_finished, within=60, every=0.15)
        await all_right(scene, 30.0)
        assert no_worker_failed(a, b)


def no_worker_failed(*workers: RunningWorker) -> bool:
    return not any(worker.task.done() for worker in workers)


async def test_a_slow_way_to_redis_makes_nobody_look_dead(scene: Scene, far: Scene, networks: Networks) -> None:
    scene.api.behave(latency="2")
    order_ids = ids(20)
    networks.redis.delay(0.2)
    await scene.enqueue(*order_ids)

    async with (
        far.worker("a", heartbeat_ttl=3.0, claim_idle=3) as a,
        far.worker("b", heartbeat_ttl=3.0, claim_idle=3) as b,
    ):
        await all_right(scene, 40.0, order_ids)

        for worker in (a, b):
            assert worker.metric("ingest_redeliveries_total", reason="dead_consumer") == 0
            assert worker.metric("ingest_redeliveries_total", reason="idle") == 0
    assert scene.api.stats().by_id == dict.fromkeys(order_ids, 1)


async def test_while_new_connections_to_redis_are_refused_too_the_worker_waits(
    scene: Scene, far: Scene, networks: Networks
) -> None:
    await scene.enqueue(*ORDERS[:10])

    async with far.worker() as worker:
        await scene.finished()
        networks.redis.refuse()
        networks.redis.cut()
        await scene.enqueue(*ORDERS[10:])
        await asyncio.sleep(0)
        until = time.monotonic() + 4.0

        async def over() -> bool:
            assert not worker.task.done()
            assert await scene.stored() == 10
            return time.monotonic() > until

        await eventually(over)
        networks.redis.accept()

        await all_right(scene, 15.0)
    await nothing_was_blamed(scene)
