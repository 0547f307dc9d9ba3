"""However the real `ingest worker` ends, its transform processes end as well, and no order is lost."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from acceptance.commands import WorkerCommand, Workers, closing_workers
from integration.scene import Scene, ids
from process_state import command_of, is_alive
from support import Cli, eventually

TESTS = str(Path(__file__).parents[1])


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    env = {
        "PYTHONPATH": TESTS,
        "INGEST_UPSTREAM_URL": scene.api.url_template,
        "INGEST_PROCESSES": "1",
        "INGEST_SHUTDOWN_GRACE": "0.5",
        "INGEST_HEARTBEAT_TTL": "1",
        "INGEST_TRANSFORM": "own_code:hostile",
        "INGEST_TRANSFORM_PROCESSES": "2",
        "INGEST_TRANSFORM_TIMEOUT": "60",
    }
    with closing_workers(cli, env) as workers:
        yield workers


async def hanging(scene: Scene, worker: WorkerCommand) -> list[psutil.Process]:
    """The transform processes, which work on an order each without end."""
    await scene.enqueue(*ids(10))
    await scene.stored_at_least(10)
    await scene.enqueue("hang-1", "hang-2")
    found = [
        child
        for child in psutil.Process(worker.process.pid).children(recursive=True)
        if "ingest.mapping.transforms.transform_process" in command_of(child)
    ]
    assert len(found) == 2
    started = {child: sum(child.cpu_times()[:2]) for child in found}

    await eventually(lambda: all(sum(child.cpu_times()[:2]) > before + 0.1 for child, before in started.items()))
    return found


async def ended(found: list[psutil.Process]) -> bool:
    return not any(map(is_alive, found))


@pytest.mark.parametrize("ask", ["the supervisor", "all processes"])
async def test_a_worker_that_is_asked_to_stop_ends_its_transform_processes(
    scene: Scene, workers: Workers, ask: str
) -> None:
    worker = workers.start()
    found = await hanging(scene, worker)

    if ask == "all processes":
        # As systemd does.
        for child in found:
            os.kill(child.pid, signal.SIGTERM)
        worker.ask_group(signal.SIGTERM)
    else:
        worker.ask(signal.SIGTERM)

    assert await worker.exit_code() == 0
    assert await ended(found)
    assert worker.events("stopped", released=2)
    assert (await scene.state()).dead == 0


async def test_the_processes_of_a_worker_that_is_killed_end_and_another_goes_on(scene: Scene, workers: Workers) -> None:
    worker = workers.start()
    found = await hanging(scene, worker)

    os.kill(worker.pid_of("worker-0"), signal.SIGKILL)

    await eventually(lambda: ended(found))
    await worker.says("process_died", process="worker-0")
    await scene.enqueue("after")
    await worker.says("entries_reclaimed", reason="restart")
    assert (await scene.state()).dead == 0


async def test_they_end_with_a_supervisor_that_is_killed(scene: Scene, workers: Workers) -> None:
    worker = workers.start()
    found = await hanging(scene, worker)

    worker.ask(signal.SIGKILL)

    await eventually(lambda: ended(found))
