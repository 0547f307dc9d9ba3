"""The real `ingest worker` stops in time while a server is unavailable or frozen, and loses no order."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psutil
import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers, is_refused
from integration.scene import Scene, assert_right, ids
from support import Cli, eventually

from ingest.lab.servers import EmbeddedServers
from ingest.lab.servers.server import free_port
from ingest.process.supervisor import KILL_MARGIN
from ingest.queue.layout.keys import Keys

ORDERS = ids(200)
GRACE = 1.0


@pytest.fixture
async def scene(own_servers: EmbeddedServers, queue_name: str) -> AsyncIterator[Scene]:
    """A scene on servers that may be stopped and frozen."""
    async with Scene.open_fragile(own_servers, queue_name) as scene:
        yield scene


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    env = {
        "INGEST_REDIS_URL": scene.redis_url,
        "INGEST_POSTGRES_DSN": scene.dsn,
        "INGEST_UPSTREAM_URL": scene.api.url_template,
        "INGEST_CONCURRENCY": "10",
        "INGEST_PROCESSES": "2",
        "INGEST_SHUTDOWN_GRACE": str(GRACE),
        "INGEST_CLAIM_IDLE": "3600",
        "INGEST_HEARTBEAT_TTL": "2",
    }
    with closing_workers(cli, env) as workers:
        yield workers


@contextmanager
def frozen(*pids: int) -> Iterator[None]:
    """Suspend these processes and their children during the block."""
    family = [
        process for pid in pids for process in (psutil.Process(pid), *psutil.Process(pid).children(recursive=True))
    ]
    for process in family:
        process.suspend()
    try:
        yield
    finally:
        for process in family:
            with suppress(psutil.NoSuchProcess):
                process.resume()


async def holds(scene: Scene, least: int, most: int = 0) -> None:
    """Wait until so many entries are pending."""

    async def are_pending() -> bool:
        return least <= (await scene.state()).pending <= max(least, most)

    await eventually(are_pending)


async def stops_in_time(command: WorkerCommand, within: float = GRACE + KILL_MARGIN) -> None:
    """Check that it stops by itself, and logs it, before the supervisor would have to kill it."""
    asked = time.monotonic()
    code = await command.exit_code(within=60)
    assert code == 0, command.log[-20:]
    assert time.monotonic() - asked < within
    assert not command.events("process_killed")
    assert not command.events("process_died")


async def is_asked_until_it_ends(command: WorkerCommand, number: signal.Signals, *, every: float) -> None:
    """Send a signal to all its processes, again and again."""

    async def ended() -> bool:
        with suppress(ProcessLookupError):
            command.ask_group(number)
        return command.process.poll() is not None

    await eventually(ended, within=30, every=every)


async def next_worker_finishes(scene: Scene, workers: Workers, order_ids: list[str] = ORDERS) -> None:
    """Check that nothing was lost: the next worker stores all that is left."""
    scene.api.behave(latency="0", hang_rate=0.0)
    next_worker = workers.start()
    await next_worker.says("process_started", process="worker-1")
    await scene.finished(within=60)
    assert await scene.dead() == []
    assert_right(await scene.rows(), order_ids)
    assert await next_worker.stop() == 0


def total(command: WorkerCommand, field: str) -> int:
    """The sum of a field over the `stopped` events of its processes."""
    return sum(int(event[field]) for event in command.events("stopped", component="worker"))


# -- Redis unavailable ------------------------------------------------------------------------------------------


async def test_a_stop_while_redis_is_frozen_reports_what_could_not_be_released(
    scene: Scene, own_servers: EmbeddedServers, workers: Workers
) -> None:
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue(*ORDERS)
    command = workers.start()
    await holds(scene, 20)

    with frozen(own_servers.valkey.pid):
        command.ask(signal.SIGTERM)
        await stops_in_time(command)

    assert total(command, "orphans") == 20
    assert total(command, "released") == 0
    await next_worker_finishes(scene, workers)


async def test_a_stop_of_an_idle_worker_while_redis_is_frozen_is_in_time(
    scene: Scene, own_servers: EmbeddedServers, workers: Workers
) -> None:
    await scene.enqueue("first")
    command = workers.start()
    await scene.stored_at_least(1)
    await scene.finished()

    with frozen(own_servers.valkey.pid):
        command.ask(signal.SIGTERM)
        await stops_in_time(command)

    assert total(command, "orphans") == 0


async def test_a_stop_while_redis_is_frozen_still_commits_the_rows_in_flight(
    scene: Scene, own_servers: EmbeddedServers, workers: Workers
) -> None:
    scene.api.behave(latency="1.5")
    await scene.enqueue(*ORDERS[:20])
    command = workers.start(shutdown_grace=5)

    await eventually(lambda: scene.api.stats().requests == 20)
    with frozen(own_servers.valkey.pid):
        command.ask(signal.SIGTERM)
        await stops_in_time(command, within=5 + KILL_MARGIN)
        assert await scene.stored() == 20

    await next_worker_finishes(scene, workers, ORDERS[:20])


async def test_while_orders_in_flight_are_finished_the_metrics_port_refuses_connections(
    scene: Scene, workers: Workers
) -> None:
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue("slow")
    port = free_port()
    command = workers.start(metrics_port=port, shutdown_grace=60)

    await eventually(lambda: scene.api.stats().requests == 1)
    command.ask(signal.SIGTERM)
    await eventually(partial(is_refused, "127.0.0.1", port), within=20)

    assert command.process.poll() is None, "it has not finished, so that the system would refuse them in any case"


# -- PostgreSQL unavailable -------------------------------------------------------------------------------------


async def test_a_stop_while_postgresql_is_frozen_releases_the_batch(
    scene: Scene, own_servers: EmbeddedServers, workers: Workers
) -> None:
    scene.api.behave(latency="0.02")
    await scene.enqueue(*ORDERS)
    command = workers.start(batch_rows=20)
    await scene.stored_at_least(20)

    with frozen(own_servers.postgres.pid):
        await holds(scene, 60, 70)
        command.ask(signal.SIGTERM)
        await stops_in_time(command)

    at_once = sum(int(event["entries"]) for event in command.events("entries_released"))
    assert total(command, "released") + at_once == len(await scene.pending())
    await next_worker_finishes(scene, workers)


# -- external API unavailable ------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", [{"error_rate": 1.0}, {"hang_rate": 1.0}, {"token": "another one"}])
async def test_a_stop_while_the_circuit_is_open_is_within_the_grace_period_and_releases_everything(
    scene: Scene, workers: Workers, way: dict[str, object]
) -> None:
    scene.api.behave(**way)
    await scene.enqueue(*ORDERS)
    command = workers.start(upstream_timeout=1, upstream_tries=1)
    await command.says("circuit_opened")

    command.ask(signal.SIGTERM)
    await stops_in_time(command, within=GRACE + 5)

    assert total(command, "orphans") == 0
    assert {entry.deliveries for entry in await scene.pending()} <= {0}
    scene.api.behave(error_rate=0.0, token=None)
    await next_worker_finishes(scene, workers)


# -- signals ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, *(pytest.param(each, marks=pytest.mark.nightly) for each in (signal.SIGINT, signal.SIGHUP))])  # fmt: skip
async def test_repeated_signals_to_all_processes_still_release_everything(
    scene: Scene, workers: Workers, number: signal.Signals
) -> None:
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue(*ORDERS)
    command = workers.start(shutdown_grace=3600)
    await holds(scene, 20)

    # Like repeated Ctrl-C at a terminal: after a single signal it would wait for an hour.
    await is_asked_until_it_ends(command, number, every=0.2)

    await stops_in_time(command)
    assert (total(command, "released"), total(command, "orphans")) == (20, 0)
    assert {entry.deliveries for entry in await scene.pending()} == {0}
    await next_worker_finishes(scene, workers)


@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGTERM, marks=pytest.mark.nightly), signal.SIGINT, signal.SIGHUP]
)
async def test_signals_until_the_process_has_exited_do_not_change_its_exit_code(
    scene: Scene, workers: Workers, number: signal.Signals
) -> None:
    await scene.enqueue("first")
    command = workers.start(metrics_port=free_port())
    await scene.stored_at_least(1)

    # Python's own exit, after it has removed its signal handlers, takes some milliseconds.
    await is_asked_until_it_ends(command, number, every=0.001)

    await stops_in_time(command)


async def test_a_stop_at_any_moment_of_the_start_succeeds(scene: Scene, workers: Workers) -> None:
    await scene.enqueue(*ORDERS)

    for number in range(8):
        command = workers.start(new_interpreter=number % 4 == 0)
        if number % 4:
            # From its first log line on: forking, connecting, the first read.
            await command.says("process_started", process=f"worker-{number % 2}")
            await asyncio.sleep(0.02 * number)
        else:
            # Python itself is starting: SIGTERM may have its default effect.
            await asyncio.sleep(0.3)
        command.ask(signal.SIGTERM)
        assert await command.exit_code() in ({0, -signal.SIGTERM} if number % 4 == 0 else {0})

    await next_worker_finishes(scene, workers)
    await ended_consumers_are_removed(scene, workers)
    assert (await scene.state()).consumers == 0


async def ended_consumers_are_removed(scene: Scene, workers: Workers) -> None:
    """A consumer that has left entries is removed when others have them, by the next process that looks, a second later."""
    worker = workers.start()
    await worker.says("process_started", process="worker-1")

    async def are_removed() -> bool:
        return not await scene.redis.zrangebyscore(Keys.of(scene.queue).alive, 0, 0)

    await eventually(are_removed)
    assert await worker.stop() == 0


async def test_a_child_killed_during_the_stop_is_reported_and_loses_nothing(scene: Scene, workers: Workers) -> None:
    scene.api.behave(hang_rate=1.0)
    await scene.enqueue(*ORDERS)
    command = workers.start(shutdown_grace=60)
    await holds(scene, 20)

    command.ask(signal.SIGTERM)
    await command.says("stop_requested", component="shutdown")
    os.kill(command.pid_of("worker-0"), signal.SIGKILL)
    await command.says("process_stopped", process="worker-0", code=-signal.SIGKILL)
    await is_asked_until_it_ends(command, signal.SIGTERM, every=0.5)
    assert await command.exit_code() == 1, "one of its processes was killed"
    await next_worker_finishes(scene, workers)
