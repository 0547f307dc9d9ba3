"""The real `ingest worker` as processes: stopped, interrupted, killed, and started while its servers are unavailable."""

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing

import psutil
import pytest
from acceptance.commands import Workers, closing_workers
from integration.scene import Scene, assert_right, ids
from process_state import is_alive
from support import Cli, eventually

from ingest.lab.servers import EmbeddedServers

ORDERS = ids(300)


@pytest.fixture
def workers(cli: Cli, scene: Scene) -> Iterator[Workers]:
    with closing_workers(cli, {"INGEST_UPSTREAM_URL": scene.api.url_template, "INGEST_CONCURRENCY": "10"}) as workers:
        yield workers


def on(fragile: Scene, workers: Workers) -> Workers:
    """The same workers, on the servers that may be stopped."""
    workers.env |= {
        "INGEST_REDIS_URL": fragile.redis_url,
        "INGEST_POSTGRES_DSN": fragile.dsn,
        "INGEST_UPSTREAM_URL": fragile.api.url_template,
    }
    return workers


async def all_finished_right(scene: Scene, order_ids: list[str] = ORDERS) -> None:
    await scene.finished()
    assert await scene.dead() == []
    assert_right(await scene.rows(), order_ids)


async def nothing_lost(scene: Scene, order_ids: list[str] = ORDERS) -> set[str]:
    """Check that each order is stored or still in the stream, and return the stored orders."""
    stored = set(await scene.rows())
    queued = {fields[b"order_id"].decode() for _, fields in await scene.redis.xrange(scene.keys.stream)}
    assert stored | queued == set(order_ids)
    return stored


# -- stopping -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", ["SIGTERM", "Ctrl-C", "SIGTERM to all"])
async def test_a_stop_finishes_the_orders_in_flight_and_leaves_the_rest_to_others(
    scene: Scene, workers: Workers, way: str
) -> None:
    scene.api.behave(latency="0.3")
    await scene.enqueue(*ORDERS)
    first = workers.start(processes=2)
    await scene.stored_at_least(20)

    match way:
        case "SIGTERM":
            first.ask(signal.SIGTERM)
        case "Ctrl-C":
            first.ask_group(signal.SIGINT)
        case _:
            first.ask_group(signal.SIGTERM)

    assert await first.exit_code() == 0
    state = await scene.state()
    assert (state.pending, state.consumers) == (0, 0), "nothing is held, and nobody stays behind"
    stored = await nothing_lost(scene)
    assert scene.api.stats().requests == len(stored), "requested orders were worth finishing"
    assert 20 <= len(stored) < len(ORDERS)
    assert sum(event.get("stored", 0) for event in first.events("stopped")) == len(stored)
    before = await scene.rows()
    scene.api.behave(latency="0")
    second = workers.start(processes=2)
    await all_finished_right(scene)
    after = await scene.rows()
    assert {order_id: after[order_id] for order_id in before} == before
    assert await second.stop() == 0


async def is_holding(scene: Scene, count: int) -> bool:
    return (await scene.state()).pending == count


# -- kills ----------------------------------------------------------------------------------------------------


async def test_a_killed_process_is_replaced_and_its_entries_run_again_at_once(scene: Scene, workers: Workers) -> None:
    scene.api.behave(latency="0.05")
    await scene.enqueue(*ORDERS)
    command = workers.start(processes=2, claim_idle=3600)
    await scene.stored_at_least(20)

    os.kill(command.pid_of("worker-0"), signal.SIGKILL)

    await all_finished_right(scene)
    await command.says("process_died", process="worker-0", code=-signal.SIGKILL, restart_in=0.0)
    await command.says("entries_reclaimed", reason="restart")
    assert not command.events("process_died", process="worker-1")
    assert await command.stop() == 0


async def test_after_a_kill_of_the_whole_command_another_one_finishes_when_the_heartbeats_have_expired(
    scene: Scene, workers: Workers
) -> None:
    scene.api.behave(latency="0.05")
    await scene.enqueue(*ORDERS)
    first = workers.start(processes=2, heartbeat_ttl=2)
    await scene.stored_at_least(20)

    first.ask_group(signal.SIGKILL)
    assert await first.exit_code() == -signal.SIGKILL
    await nothing_lost(scene)
    assert await scene.pending()

    second = workers.start(processes=2, heartbeat_ttl=2)
    await all_finished_right(scene)
    await second.says("entries_reclaimed", reason="dead_consumer")
    assert await second.stop() == 0


async def test_after_a_kill_of_the_supervisor_its_workers_stop_in_order(scene: Scene, workers: Workers) -> None:
    scene.api.behave(latency="0.2")
    await scene.enqueue(*ORDERS)
    command = workers.start(processes=2)
    await scene.stored_at_least(20)
    pids = [command.pid_of(f"worker-{slot}") for slot in (0, 1)]

    command.ask(signal.SIGKILL)

    await eventually(lambda: not any(map(is_alive, pids)))
    state = await scene.state()
    assert (state.pending, state.consumers) == (0, 0)
    await nothing_lost(scene)


# -- starting -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "server"), [("redis", "valkey"), ("postgres", "postgres")])
async def test_it_waits_for_a_server_with_a_message_and_continues_when_the_server_starts(
    fragile: Scene, own_servers: EmbeddedServers, workers: Workers, name: str, server: str
) -> None:
    await asyncio.to_thread(getattr(own_servers, server).stop)
    command = on(fragile, workers).start(processes=1)

    await command.says("unavailable", server=name)
    assert command.process.poll() is None
    await asyncio.to_thread(getattr(own_servers, server).start)

    await command.says("available_again", server=name)
    await fragile.enqueue(*ids(10))
    await all_finished_right(fragile, ids(10))
    assert await command.stop() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_stop_while_it_waits_for_a_server_succeeds(
    fragile: Scene, own_servers: EmbeddedServers, workers: Workers, number: signal.Signals
) -> None:
    await asyncio.to_thread(own_servers.valkey.stop)
    command = on(fragile, workers).start()
    await command.says("unavailable", server="redis")

    command.ask_group(number)

    assert await command.exit_code() == 0
    assert [event["cause"] for event in command.events("stop_requested")] == [number.name]


async def test_a_metrics_port_in_use_is_one_line_that_names_it(workers: Workers) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]

        command = workers.start(metrics_port=port)
        assert await command.exit_code() == 1

    assert [set(event) for event in command.log] == [{"event", "text"}], command.log
    line = str(command.log[0]["text"])
    assert line.startswith("ingest: ")
    assert f"127.0.0.1:{port}" in line
    assert "INGEST_METRICS_PORT" in line


# -- memory ---------------------------------------------------------------------------------------------------


async def memory_with_a_backlog_of(scene: Scene, workers: Workers, backlog: int) -> int:
    """The memory of a worker process with all slots in use, including its share of shared pages."""
    await scene.enqueue(*(f"order-{number}" for number in range(backlog)))
    command = workers.start(processes=1, concurrency=5)
    await eventually(lambda: is_holding(scene, 5))
    await eventually(lambda: hangs(scene, 5))
    process = psutil.Process(command.pid_of("worker-0"))
    taken: int = process.memory_full_info().pss
    command.ask_group(signal.SIGKILL)
    await command.exit_code()
    await scene.redis.delete(scene.keys.stream)
    scene.api.reset_stats()
    return taken


async def hangs(scene: Scene, count: int) -> bool:
    return scene.api.stats().requests == count


async def test_the_memory_of_a_worker_does_not_depend_on_the_backlog(scene: Scene, workers: Workers) -> None:
    scene.api.behave(hang_rate=1.0)

    small = await memory_with_a_backlog_of(scene, workers, 200)
    large = await memory_with_a_backlog_of(scene, workers, 20_000)

    assert abs(large - small) < 0.1 * small
