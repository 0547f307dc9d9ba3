"""/healthz and /readyz of real workers. A process that holds orders and completes none is unhealthy, but an outage is not."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from integration.scene import Scene, ids
from support import Cli, eventually

from ingest.lab.servers import EmbeddedServers, ValkeyServer
from ingest.lab.servers.server import free_port

TESTS = Path(__file__).parents[1]
STUCK_AFTER = 0.5
# With the longest request and call of the transform: after two seconds.
ENV = {
    "INGEST_PROCESSES": "1",
    "INGEST_CONCURRENCY": "2",
    "INGEST_STUCK_AFTER": str(STUCK_AFTER),
    "INGEST_UPSTREAM_TIMEOUT": "1",
    "INGEST_TRANSFORM_TIMEOUT": "0.5",
    "INGEST_UPSTREAM_TRIES": "1",
    # Soon full, so that nothing is read while PostgreSQL is unavailable.
    "INGEST_BATCH_ROWS": "2",
}
STUCK_BY_NOW = 5.0


class Probes:
    """Sends a worker the same probes as Kubernetes."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self.port = free_port()

    async def ask(self, path: str) -> tuple[int, str]:
        try:
            async with self._session.get(f"http://127.0.0.1:{self.port}{path}") as answer:
                return answer.status, (await answer.text()).strip()
        except aiohttp.ClientConnectionError:
            return 0, "nobody answers"

    async def until(self, path: str, status: int) -> str:
        async def answered() -> str | None:
            got, text = await self.ask(path)
            return text if got == status else None

        text = await eventually(answered)
        assert text is not None
        return text

    async def alive_throughout(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            assert (await self.ask("/healthz"))[0] == 200
            await asyncio.sleep(0.1)


@pytest.fixture
async def probes() -> AsyncIterator[Probes]:
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(3)) as session:
        yield Probes(session)


@pytest.fixture
async def scene(own_servers: EmbeddedServers, queue_name: str) -> AsyncIterator[Scene]:
    """A scene on servers that may be stopped."""
    async with Scene.open_fragile(own_servers, queue_name) as scene:
        yield scene


@pytest.fixture
def workers(cli: Cli, scene: Scene, probes: Probes) -> Iterator[Workers]:
    env = {
        "INGEST_REDIS_URL": scene.redis_url,
        "INGEST_POSTGRES_DSN": scene.dsn,
        "INGEST_UPSTREAM_URL": scene.api.url_template,
        "INGEST_METRICS_PORT": str(probes.port),
        "PYTHONPATH": str(TESTS),
    }
    with closing_workers(cli, {**ENV, **env}) as workers:
        yield workers


async def ready(workers: Workers, probes: Probes, **settings: object) -> WorkerCommand:
    command = workers.start(**settings)
    await command.says("process_started", process="metrics")
    assert await probes.until("/readyz", 200) == "ok"
    return command


async def test_a_process_whose_orders_never_end_is_stuck(workers: Workers, probes: Probes, scene: Scene) -> None:
    command = await ready(workers, probes, transform="own_code:keeps_slots")

    await scene.enqueue(*ids(5))

    assert await probes.until("/healthz", 503) == "stuck: worker-0"
    assert await probes.ask("/readyz") == (503, "stuck: worker-0")
    # As the kubelet does then: the process ends in order, and its orders are for others.
    command.ask(signal.SIGTERM)
    assert await command.exit_code() == 0
    assert command.events("stopped", orphans=0)


async def test_an_idle_process_is_alive(workers: Workers, probes: Probes) -> None:
    await ready(workers, probes)

    await probes.alive_throughout(STUCK_BY_NOW)


@pytest.mark.parametrize("server", ["redis", "postgres", "api", "silent_api"])
async def test_a_backlog_that_waits_for_a_server_does_not_make_a_process_unhealthy(
    workers: Workers, probes: Probes, scene: Scene, own_servers: EmbeddedServers, server: str
) -> None:
    command = await ready(workers, probes)
    match server:
        case "redis":
            await scene.enqueue(*ids(50))
            await asyncio.to_thread(own_servers.valkey.stop)
        case "postgres":
            await asyncio.to_thread(own_servers.postgres.stop, "immediate")
            await scene.enqueue(*ids(50))
        case "silent_api":
            scene.api.behave(latency="60")
            await scene.enqueue(*ids(50))
        case _:
            await scene.api.__aexit__(None, None, None)
            await scene.enqueue(*ids(50))

    await probes.alive_throughout(STUCK_BY_NOW)

    assert command.process.poll() is None


async def test_a_worker_that_starts_without_its_servers_is_alive_and_not_ready(
    workers: Workers, probes: Probes, tmp_path: Path
) -> None:
    with ValkeyServer(tmp_path / "valkey") as own:
        await asyncio.to_thread(own.stop)
        command = workers.start(redis_url=own.url)
        assert (await probes.until("/readyz", 503)).startswith("waits for its servers; redis: ")
        assert await probes.ask("/healthz") == (200, "ok: waits for its servers")

        await asyncio.to_thread(own.start)

        assert await probes.until("/readyz", 200) == "ok"
        assert await command.stop() == 0


async def test_a_worker_that_waits_for_its_servers_stops_when_asked(
    workers: Workers, probes: Probes, tmp_path: Path
) -> None:
    with ValkeyServer(tmp_path / "valkey") as own:
        await asyncio.to_thread(own.stop)
        command = workers.start(redis_url=own.url)
        await probes.until("/readyz", 503)

        assert await command.stop() == 0
