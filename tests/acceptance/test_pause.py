"""`ingest pause`, `resume`, `drain`, `tune` and `log-level` with running workers of several sources."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest
from acceptance.commands import WorkerCommand, Workers
from acceptance.several_sources import Shops
from integration.scene import Scene, ids
from support import Cli, eventually

from ingest.queue.operate.controls import controls_key

# From the moment at which the command is started. The command itself takes a part of it.
WITHIN = 2.0
COUNT = 2_000


@pytest.fixture
async def shops(scene: Scene, tmp_path: Path) -> AsyncIterator[Shops]:
    async with Shops.open(scene, tmp_path / "sources.toml", "a", "b", "c") as shops:
        for name in "abc":
            shops[name].api.behave(latency="0.1")
        yield shops


@pytest.fixture
def workers(cli: Cli, shops: Shops) -> Iterator[Workers]:
    workers = shops.workers(cli)
    cli.env.update(workers.env)
    yield workers
    for command in workers.started:
        command.close()


async def run(cli: Cli, *arguments: str) -> CompletedProcess[str]:
    """Run a command while the APIs of this process respond."""
    done = await asyncio.to_thread(cli.run, *arguments)
    assert done.returncode == 0, done.stderr
    return done


def requests(shops: Shops, name: str) -> int:
    return shops[name].api.stats().requests


async def begun(shops: Shops, name: str, count: int = 20) -> None:
    before = requests(shops, name)
    await eventually(lambda: requests(shops, name) >= before + count)


async def test_a_paused_source_sends_no_request_and_the_others_continue(
    cli: Cli, shops: Shops, workers: Workers
) -> None:
    for name in "abc":
        await shops[name].enqueue(*ids(COUNT, "o"))
    commands = [workers.start(processes=2, concurrency=24) for _ in range(2)]
    for name in "abc":
        await begun(shops, name)

    done = await run(cli, "pause", "--source", "b", "--reason", "maintenance")
    paused_at = time.monotonic()
    await eventually(lambda: sum(len(each.events("source_paused", source="b")) for each in commands) == 4)
    await eventually(lambda: shops["b"].api.stats().concurrency == 0)
    last = shops["b"].api.stats().last_request
    for name in "ac":
        await begun(shops, name, 50)
    sent = requests(shops, "b")

    assert done.stdout == "b is paused until it is resumed\n"
    assert last is not None
    assert last.monotonic <= paused_at + WITHIN
    assert sent < COUNT

    await run(cli, "resume", "--source", "b")
    for name in "abc":
        await shops.stored(name, ids(COUNT, "o"), within=120)
        await shops[name].finished()
    assert_no_attempt_counted(commands)
    assert requests(shops, "b") == COUNT


def assert_no_attempt_counted(commands: list[WorkerCommand]) -> None:
    assert [command.events("retry_scheduled") for command in commands] == [[] for _ in commands]
    assert [command.events("entries_reclaimed") for command in commands] == [[] for _ in commands]


async def test_a_pause_outlives_the_data_of_redis(cli: Cli, shops: Shops, workers: Workers, scene: Scene) -> None:
    worker = workers.start(processes=1, concurrency=12)
    await shops["a"].enqueue("o-0")
    await shops.stored("a", ["o-0"])
    await run(cli, "pause", "--source", "b")
    await worker.says("source_paused", source="b")

    await scene.redis.delete(controls_key(scene.queue))  # of this test only, because the server is shared
    await worker.says("controls_restored")
    for name in "ab":
        await shops[name].enqueue("o-1")
    await shops.stored("a", ["o-0", "o-1"])

    assert requests(shops, "b") == 0
    assert "paused" in (await run(cli, "status", "--source", "b")).stdout


async def test_a_drained_command_leaves_the_orders_to_the_others(cli: Cli, shops: Shops, workers: Workers) -> None:
    await shops["a"].enqueue(*ids(700, "o"))
    first, second = workers.start(processes=1, concurrency=12), workers.start(processes=1, concurrency=12)
    await begun(shops, "a")
    name = json.loads((await run(cli, "drain", "--json")).stdout.splitlines()[0])["process"]

    drained = await run(cli, "drain", name, "--reason", "test")
    command = await eventually(lambda: next((each for each in (first, second) if each.events("source_paused")), None))
    await shops.stored("a", ids(700, "o"), within=120)
    listed = [json.loads(line) for line in (await run(cli, "drain", "--json")).stdout.splitlines()]
    status = (await run(cli, "status", "--source", "a")).stdout
    await run(cli, "drain", name, "--undo")

    assert drained.stdout.startswith("drained 1 process with ")
    assert {each["process"]: each["drained"] for each in listed}[name]
    assert sum(each["drained"] for each in listed) == 1
    assert "alive, drained" in status
    await command.says("source_resumed", source="a")
    assert_no_attempt_counted([first, second])


async def test_the_limits_of_a_running_source_and_the_log_level_are_changed(
    cli: Cli, shops: Shops, workers: Workers
) -> None:
    await shops["a"].enqueue(*ids(600, "o"))
    await shops["b"].enqueue(*ids(100, "o"))
    command = workers.start(processes=1, concurrency=20)
    await begun(shops, "a")

    dry = await run(cli, "log-level", "debug", "--dry-run")
    unchanged = await run(cli, "log-level")
    await run(cli, "log-level", "debug")
    tuned = await run(cli, "tune", "--source", "a", "--concurrency", "2", "--rate", "10")
    await command.says("stop_requested", source="a", cause="its limits have changed")
    await eventually(lambda: shops["a"].api.stats().concurrency <= 2)
    await begun(shops, "a", 1)
    shops["a"].api.reset_stats()
    await begun(shops, "a", 25)
    limited = shops["a"].api.stats()
    reset = await run(cli, "tune", "--source", "a", "--reset")

    assert dry.stdout == "all other workers would log at debug\n"
    assert unchanged.stdout == "all workers log at their configured level\n"
    assert tuned.stdout == "a has concurrency 2, rate 10/s\n"
    assert limited.peak_concurrency <= 2
    assert limited.busiest_second <= 12
    assert reset.stdout == "a has the configured limits\n"
    await shops.stored("a", ids(600, "o"), within=120)
    await shops.stored("b", ids(100, "o"))
    assert not command.events("stop_requested", source="b")
    assert_no_attempt_counted([command])

    done = await run(cli, "log-level", "--reset")
    assert done.stdout == "all workers log at their configured level\n"
    await command.says("log_level_changed", log_level="debug")
    await command.says("log_level_changed", log_level="configured")
