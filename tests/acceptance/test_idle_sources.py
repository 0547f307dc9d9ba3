"""Many idle sources in one process cost Redis hardly more than one, and their orders survive the process like the orders of one."""

import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from acceptance.commands import Workers
from acceptance.several_sources import Shops
from integration.scene import Scene, ids
from support import Cli, eventually

SOURCES = 50
# The most commands a second that all sources may cost, where one costs 3.3.
MOST_COMMANDS = 13.3
SECONDS = 10
# From the death of a process to the last row of an order that it held, with the default settings.
MOST_SECONDS = 10.0


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    workers = Workers(cli, {"INGEST_STREAM": scene.queue, "INGEST_LOG_FORMAT": "json"})
    yield workers
    for command in workers.started:
        command.close()


async def test_fifty_idle_sources_send_few_commands_and_get_an_order_immediately(
    scene: Scene, workers: Workers, tmp_path: Path
) -> None:
    names = [f"shop-{number}" for number in range(SOURCES)]
    file = tmp_path / "sources.toml"
    file.write_text("".join(f'[sources.{name}]\nupstream.url = "{scene.api.url_template}"\n' for name in names))
    workers.env["INGEST_SOURCES"] = str(file)
    workers.start(processes=1, concurrency=2 * SOURCES)

    commands = await commands_of_idle_sources(scene)

    assert commands.total() / SECONDS <= MOST_COMMANDS, commands
    assert commands["XREADGROUP"] <= 3 * SECONDS, commands
    async with Scene.open(scene.redis_url, scene.dsn, f"{scene.queue}/shop-7") as shop:
        began = time.monotonic()
        await shop.enqueue("a")
        await scene.stored_at_least(1)
        assert time.monotonic() - began < 1.0, "an idle source does not wait for the next instant"


async def commands_of_idle_sources(scene: Scene) -> Counter[str]:
    """The commands that the process sends in ten seconds, counted from when all of its sources read together."""
    commands: Counter[str] = Counter()
    began = None
    async with scene.redis.monitor() as monitor:
        async for each in monitor.listen():
            words = each["command"].split()
            if each["client_type"] == "lua" or scene.queue not in each["command"]:
                continue
            if began is None:
                reads_all = words[0] == "XREADGROUP" and words.count(">") == 2 * SOURCES
                began = each["time"] if reads_all else None
            elif each["time"] - began > SECONDS:
                return commands
            else:
                commands[words[0]] += 1
    raise AssertionError("the server has ended the monitor")


async def test_the_orders_of_all_sources_of_a_killed_process_run_elsewhere_within_ten_seconds(
    scene: Scene, workers: Workers, cli: Cli, tmp_path: Path
) -> None:
    names = [f"shop-{number}" for number in range(10)]
    async with Shops.open(scene, tmp_path / "sources.toml", *names) as shops:
        workers.env |= shops.workers(cli).env
        for name in names:
            shops[name].api.behave(latency="60")
            await shops[name].enqueue(*ids(5, name))
        victim = workers.start(processes=1, concurrency=100)
        await victim.says("process_started", process="worker-0")
        for name in names:
            await eventually(lambda name=name: holds(shops[name], 5))
        workers.start(processes=1, concurrency=100)
        for name in names:
            # Only a consumer that has kept its heartbeat for a lifetime may declare others dead.
            await eventually(lambda name=name: are_standing(shops[name], 2))
        for name in names:
            shops[name].api.behave(latency="0")

        victim.ask_group(signal.SIGKILL)
        killed_at = time.monotonic()

        for name in names:
            await shops.stored(name, ids(5, name))
        assert time.monotonic() - killed_at < MOST_SECONDS


async def holds(shop: Scene, count: int) -> bool:
    return await shop.pending_count() == count


async def are_standing(shop: Scene, count: int) -> bool:
    """Whether that many consumers may reclaim the entries of others."""
    seconds, microseconds = await shop.redis.time()
    now = seconds * 1000 + microseconds // 1000
    return len(await shop.redis.zrangebyscore(shop.keys.standing, "-inf", now)) == count
