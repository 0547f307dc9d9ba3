"""/healthz and `ingest health`: the worker's processes live, whatever its servers do."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from fakes.set_clock import Clock
from integration.scene import Scene
from support import Cli, eventually

from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port
from ingest.telemetry.liveness import ProcessLiveness
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics
from ingest.telemetry.shared_metrics import SharedMetrics

LIMIT = 1.0


class Health:
    """Asks the worker of one test."""

    def __init__(self, cli: Cli) -> None:
        self.env = {"INGEST_METRICS_PORT": str(free_port()), "INGEST_HEARTBEAT_TTL": str(LIMIT)}
        self._cli = cli

    async def ask(self, **env: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(self._cli.run, "health", env=self.env | env)

    async def until(self, code: int) -> subprocess.CompletedProcess[str]:
        async def answered() -> subprocess.CompletedProcess[str] | None:
            done = await self.ask()
            return done if done.returncode == code else None

        done = await eventually(answered)
        assert done is not None
        return done


@pytest.fixture
def health(cli: Cli) -> Health:
    return Health(cli)


@pytest.fixture
def workers(cli: Cli, scene: Scene, health: Health) -> Iterator[Workers]:
    with closing_workers(cli, {"INGEST_UPSTREAM_URL": scene.api.url_template, **health.env}) as workers:
        yield workers


async def started(workers: Workers, health: Health) -> WorkerCommand:
    command = workers.start(processes=2)
    await command.says("process_started", process="worker-1")
    await health.until(0)
    return command


async def test_a_frozen_process_is_named_and_a_thawed_one_is_well_again(workers: Workers, health: Health) -> None:
    command = await started(workers, health)
    well = await health.ask()
    os.kill(command.pid_of("worker-1"), signal.SIGSTOP)

    frozen = await health.until(1)

    assert (well.returncode, well.stdout, well.stderr) == (0, "ok\n", "")
    assert frozen.stderr == "ingest: stalled: worker-1 (HTTP 503)\n"
    os.kill(command.pid_of("worker-1"), signal.SIGCONT)
    await health.until(0)


async def test_a_worker_without_redis_is_well(workers: Workers, health: Health, tmp_path: Path) -> None:
    with ValkeyServer(tmp_path / "valkey") as own:
        workers.env |= {"INGEST_REDIS_URL": own.url}
        command = await started(workers, health)
        await asyncio.to_thread(own.stop)
        # A process that starts now waits for Redis before it can work.
        os.kill(command.pid_of("worker-0"), signal.SIGKILL)
        await command.says("unavailable", server="redis")
        until = time.monotonic() + 2 * LIMIT
        while time.monotonic() < until:
            assert (await health.ask()).returncode == 0


async def test_nobody_there_is_one_line(health: Health) -> None:
    done = await health.ask()

    assert done.returncode == 1
    assert done.stderr.startswith(f"ingest: no response from 127.0.0.1:{health.env['INGEST_METRICS_PORT']}: ")
    assert done.stderr.count("\n") == 1


async def test_without_a_port_there_is_nobody_to_ask(health: Health) -> None:
    done = await health.ask(INGEST_METRICS_PORT="0")

    assert done.returncode == 2
    assert "INGEST_METRICS_PORT is 0" in done.stderr


def turn(shared_metrics: SharedMetrics, slot: int) -> None:
    WorkerMetrics.on(shared_metrics, slot).loop_lag.observe(0.0)


def test_only_a_count_that_stands_still_for_longer_than_the_limit_is_silence() -> None:
    shared_metrics, clock = worker_shared_metrics(2), Clock()
    liveness = ProcessLiveness(shared_metrics, limit=6.0, clock=clock)

    clock.now += 6.0
    assert liveness.stalled() == []
    turn(shared_metrics, 0)
    clock.now += 0.1
    assert liveness.stalled() == [1]
    clock.now += 6.1
    assert liveness.stalled() == [0, 1]
    turn(shared_metrics, 1)
    assert liveness.stalled() == [0]
