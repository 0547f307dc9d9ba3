"""The real `ingest worker` with several sources, whose APIs and queues are separate, so a failure of one does not affect the others."""

import asyncio
import json
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from acceptance.commands import Workers
from acceptance.several_sources import MAPPING, Shops
from integration.scene import GROUP, Scene, ids
from prometheus_client.parser import text_string_to_metric_families
from support import Cli, eventually

from ingest.lab.servers.server import free_port
from ingest.store.schema import migrate, migrations

KEEP = "def keep(order, document):\n    return order\n"


@pytest.fixture
async def shops(scene: Scene, tmp_path: Path) -> AsyncIterator[Shops]:
    async with Shops.open(scene, tmp_path / "sources.toml", "a", "b", "c") as shops:
        yield shops


@pytest.fixture
def workers(cli: Cli, shops: Shops) -> Iterator[Workers]:
    workers = shops.workers(cli)
    yield workers
    for command in workers.started:
        command.close()


async def test_each_order_is_fetched_from_the_api_of_its_source(shops: Shops, workers: Workers) -> None:
    for name in "abc":
        await shops[name].enqueue(*ids(50, "same"))

    command = workers.start(processes=2, concurrency=20)

    for name in "abc":
        await shops.stored(name, ids(50, "same"))
        await shops[name].finished()
        assert set(shops[name].api.stats().by_id) == set(ids(50, "same"))
    assert await command.stop() == 0
    assert [(await shops[name].state()).consumers for name in "abc"] == [0, 0, 0], "no process stays in a group"


async def test_orders_with_one_id_are_stored_in_each_source(shops: Shops, workers: Workers) -> None:
    for name in "abc":
        await shops[name].enqueue(*ids(20))

    command = workers.start(processes=2, concurrency=20)

    for name in "abc":
        await shops.stored(name, ids(20))
    assert await command.stop() == 0
    assert len(await shops["a"].sql("SELECT FROM orders")) == 60


async def test_workers_of_named_sources_need_the_key_with_the_source(workers: Workers, empty_dsn: str) -> None:
    await migrate(empty_dsn, migrations()[:3])
    await migrate(empty_dsn, migrations())
    workers.env["INGEST_POSTGRES_DSN"] = empty_dsn

    command = workers.start()

    assert await command.exit_code() == 2
    assert "ingest migrate --contract" in str(command.log[-1]["text"])


async def test_a_named_source_is_the_only_one_that_runs(shops: Shops, workers: Workers) -> None:
    for name in "ab":
        await shops[name].enqueue(*ids(5, name))

    command = workers.start("--source", "b", processes=1)

    await shops.stored("b", ids(5, "b"))
    assert await command.stop() == 0
    assert shops["a"].api.stats().requests == 0


async def test_an_unknown_source_is_an_error_that_lists_the_sources(workers: Workers) -> None:
    command = workers.start("--source", "d")

    assert await command.exit_code() == 2
    assert "the sources are a, b, c" in str(command.log[0]["text"])


async def test_more_sources_than_orders_in_flight_are_an_error(workers: Workers) -> None:
    command = workers.start(concurrency=2)

    assert await command.exit_code() == 2
    assert "INGEST_CONCURRENCY is 2, and there are 3 sources" in str(command.log[0]["text"])


async def test_a_source_that_cannot_be_opened_does_not_hold_up_the_others(
    shops: Shops, workers: Workers, tmp_path: Path
) -> None:
    code = tmp_path / "code_of_a.py"
    code.write_text(KEEP)
    workers.env["PYTHONPATH"] = str(tmp_path)
    shops.write(a='transform = "code_of_a:keep"')
    for name in "ab":
        await shops[name].enqueue(*ids(5, name))
    command = workers.start(processes=1)
    await shops.stored("a", ids(5, "a"))
    code.unlink()

    command.ask_child("worker-0", signal.SIGKILL)

    await command.says("source_failed", source="a")
    await shops["b"].enqueue(*ids(9, "later"))
    await shops.stored("b", ids(9, "later"))
    code.write_text(KEEP)
    await shops["a"].enqueue(*ids(9, "again"))
    await shops.stored("a", ids(9, "again"))
    assert await command.stop() == 0


async def test_a_missing_secret_and_a_broken_mapping_keep_no_other_source_down_at_start(
    cli: Cli, shops: Shops, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "own.toml").write_text("[order")
    shops.write(a='upstream.token_file = "token"', b='mapping = "own.toml"')
    for name in "abc":
        await shops[name].enqueue(*ids(5, name))

    command = workers.start(processes=1)

    assert "token" in (await command.says("source_failed", source="a"))["problem"]
    assert "own.toml" in (await command.says("source_failed", source="b"))["problem"]
    await shops.stored("c", ids(5, "c"), within=60)

    async def states(*wanted: str) -> bool:
        found = await asyncio.to_thread(cli.run, "status", "--json", env=workers.env)
        return [each["condition"]["state"] for each in json.loads(found.stdout)["sources"]] == [*wanted]

    await eventually(lambda: states("rejected", "rejected", "idle"), within=60)
    (tmp_path / "token").write_text("a-token")
    (tmp_path / "own.toml").write_text(MAPPING.format(country="NO"))
    for name in "ab":
        await shops.stored(name, ids(5, name), within=60)
    await eventually(lambda: states("idle", "idle", "idle"), within=60)
    assert await command.stop() == 0


async def test_an_invalid_source_keeps_its_settings_while_the_others_are_reloaded(
    shops: Shops, workers: Workers
) -> None:
    command = workers.start(processes=1)
    await shops["a"].enqueue(*ids(5, "a"))
    await shops.stored("a", ids(5, "a"), within=60)

    shops.write(a='upstream.token_file = "token"', b="concurrency = 3")

    assert "token" in (await command.says("sources_not_reloaded"))["problem"]
    await command.says("sources_reloaded", added=[], changed=["b"], removed=[])
    await shops["a"].enqueue(*ids(9, "later"))
    await shops.stored("a", ids(9, "later"), within=60)
    assert not command.events("stopped", source="a")
    assert await command.stop() == 0


async def test_a_worker_ends_if_every_source_fails(shops: Shops, workers: Workers, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[order")
    shops.write("a", "b", a='upstream.token_file = "token"', b='mapping = "own.toml"')

    command = workers.start(processes=1)

    assert await command.exit_code() == 2
    assert command.events("source_failed", source="a")
    assert "own.toml" in str(command.log[-1]["text"])


# -- reload ---------------------------------------------------------------------------------------------------


async def test_an_added_source_starts_and_a_removed_one_keeps_its_queue(shops: Shops, workers: Workers) -> None:
    shops.write("a", "b")
    command = workers.start(processes=2)
    await shops["a"].enqueue(*ids(5, "a"))
    await shops.stored("a", ids(5, "a"))

    shops.write("b", "c")

    await command.says("sources_reloaded", added=["c"], changed=[], removed=["a"])
    await shops["c"].enqueue(*ids(5, "c"))
    await shops.stored("c", ids(5, "c"))
    await eventually(lambda: has_left(shops["a"]))
    await shops["a"].enqueue(*ids(9, "late"))
    await shops["b"].enqueue(*ids(9, "b"))
    await shops.stored("b", ids(9, "b"))
    assert (await shops["a"].state()).depth == 9
    command.ask_child("worker-0", signal.SIGKILL)
    await command.says("process_died")
    await shops["c"].enqueue(*ids(30, "more"))
    await shops.stored("c", ids(30, "more"))
    assert shops["a"].api.stats().requests == 5, "a new process begins with the sources of now"
    shops.write("a", "b", "c")
    await shops.stored("a", ids(9, "late"))
    assert await command.stop() == 0


async def has_left(scene: Scene) -> bool:
    """Whether no process is in the group any more."""
    return (await scene.state()).consumers == 0


async def test_metrics_and_log_lines_name_the_source_and_follow_the_file(shops: Shops, workers: Workers) -> None:
    port = free_port()
    workers.env["INGEST_METRICS_PORT"] = str(port)
    shops.write("a", "b")
    shops["a"].api.delete_order("nowhere")
    await shops["a"].enqueue("nowhere", *ids(1))
    await shops["b"].enqueue(*ids(5))

    async def shows(name: str, expected: dict[str, float], **labels: str) -> None:
        async def equal() -> bool:
            return await asyncio.to_thread(values_by_source, port, name, labels) == expected

        await eventually(equal)

    command = workers.start(processes=2, concurrency=20)
    await shops.stored("b", ids(5))
    await shows("ingest_orders_total", {"a": 1, "b": 5}, outcome="stored")
    await shows("ingest_orders_total", {"a": 1, "b": 0}, outcome="dead")
    await shows("ingest_queue_consumers", {"a": 2, "b": 2})
    shops.write("b", "c")
    await command.says("sources_reloaded")
    await shows("ingest_orders_total", {"b": 5, "c": 0}, outcome="stored")
    await shows("ingest_queue_depth", {"b": 0, "c": 0})

    assert await command.stop() == 0
    [dead] = command.events("dead_lettered")
    assert (dead["order_id"], dead["source"]) == ("nowhere", "a")


def values_by_source(port: int, name: str, labels: dict[str, str]) -> dict[str, float]:
    """The samples of a worker's /metrics with these labels, by source. Empty until it listens."""
    try:
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
            families = text_string_to_metric_families(page.read().decode())
    except OSError:
        return {}
    samples = [sample for family in families for sample in family.samples if sample.name == name]
    return {sample.labels["source"]: sample.value for sample in samples if labels.items() <= sample.labels.items()}


async def test_a_change_of_a_source_finishes_its_orders_in_flight_and_does_not_touch_the_others(
    shops: Shops, workers: Workers
) -> None:
    for name in "ab":
        shops[name].api.behave(latency="2")
        await shops[name].enqueue(*ids(5, name))
    command = workers.start(processes=1)
    await eventually(lambda: shops["a"].api.stats().requests == shops["b"].api.stats().requests == 5)

    shops.write(a="concurrency = 3")

    await command.says("stop_requested", cause="the source a has changed")
    for name in "ab":
        await shops.stored(name, ids(5, name))
    await shops["a"].enqueue(*ids(9, "later"))
    await shops.stored("a", ids(9, "later"))
    await command.says("stopped", source="a")
    assert not command.events("stopped", source="b")
    assert [shops[name].api.stats().requests for name in "ab"] == [14, 5], "each order was requested once"
    assert await command.stop() == 0


@pytest.mark.parametrize(
    "text", ["[sources.a", "[sources.a]\nmapping = 'nowhere.toml'\nupstream.url = 'http://x/{order_id}'\n"]
)
async def test_an_invalid_file_is_an_error_and_the_sources_before_continue(
    shops: Shops, workers: Workers, text: str
) -> None:
    command = workers.start(processes=1)
    await shops["a"].enqueue(*ids(5, "a"))
    await shops.stored("a", ids(5, "a"))

    shops.file.write_text(text)

    problem = str((await command.says("sources_not_reloaded"))["problem"])
    assert shops.file.name in problem or "nowhere.toml" in problem
    await shops["b"].enqueue(*ids(5, "b"))
    await shops.stored("b", ids(5, "b"))
    assert not command.events("stopped")
    assert await command.stop() == 0


async def test_sighup_reads_the_file_and_the_mappings_again(shops: Shops, workers: Workers) -> None:
    mapping = shops.file.with_name("own.toml")
    mapping.write_text(MAPPING.format(country="NO"))
    shops.write(a='mapping = "own.toml"')
    command = workers.start(processes=1)
    await shops["a"].enqueue(*ids(5, "a"))
    await shops.stored("a", ids(5, "a"))
    mapping.write_text(MAPPING.format(country="SE"))

    command.ask(signal.SIGHUP)

    await command.says("stopped", source="a")
    await shops["a"].enqueue(*ids(5, "b"))
    await shops.stored("a", ids(5, "b"))
    found = await shops["a"].sql("SELECT DISTINCT country, left(order_id, 1) FROM orders ORDER BY 1")
    assert [tuple(row) for row in found] == [("NO", "a"), ("SE", "b")]
    assert not command.events("stopped", source="b")
    assert await command.stop() == 0


async def test_a_file_that_is_larger_than_the_buffer_of_a_pipe_is_read_again(shops: Shops, workers: Workers) -> None:
    long = f"upstream.body = '{{order_id}}{'x' * 100_000}'\nupstream.method = 'POST'"
    command = workers.start(processes=1)
    await command.says("process_started", process="worker-0")

    shops.write(a=long)

    await command.says("sources_reloaded", within=20)
    await shops["b"].enqueue(*ids(5, "b"))
    await shops.stored("b", ids(5, "b"))
    assert await command.stop() == 0


async def test_a_stop_does_not_wait_for_a_file_that_is_being_read_again(
    shops: Shops, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "slow_code.py").write_text("import time\n\ntime.sleep(60)\n" + KEEP)
    workers.env["PYTHONPATH"] = str(tmp_path)
    command = workers.start(processes=1)
    await shops["a"].enqueue(*ids(5, "a"))
    await shops.stored("a", ids(5, "a"))
    shops.write(a='transform = "slow_code:keep"')
    await command.says("process_started", process="reload")

    command.ask(signal.SIGTERM)

    assert await command.exit_code(within=10.0) == 0


async def test_a_stop_while_all_sources_work_finishes_their_orders(shops: Shops, workers: Workers) -> None:
    for name in "abc":
        shops[name].api.behave(latency="0.5")
        await shops[name].enqueue(*ids(40, name))
    command = workers.start(processes=1, concurrency=30)
    await shops.stored("a", ids(1, "a"))

    assert await command.stop() == 0

    for name in "abc":
        state = await shops[name].state()
        assert (state.pending, state.consumers) == (0, 0), "nothing is held, and nobody stays behind"


# -- isolation ------------------------------------------------------------------------------------------------

FAILURES: dict[str, tuple[dict[str, object], str]] = {
    "hangs": ({"hang_rate": 1.0}, ""),
    "rejects the credential": ({"token": "another"}, ""),
    "asks to wait for an hour": ({"rate_limit": 0.001, "rate_burst": 1, "retry_after": 3600}, ""),
    "kills its transform process": ({}, 'transform = "code_of_a:kill"\ntransform_processes = 1'),
}


@pytest.mark.parametrize("failure", FAILURES)
async def test_a_failure_of_one_source_does_not_delay_another(
    shops: Shops, workers: Workers, tmp_path: Path, failure: str
) -> None:
    behaviour, section = FAILURES[failure]
    (tmp_path / "code_of_a.py").write_text("import os\n\ndef kill(order, document):\n    os.kill(os.getpid(), 9)\n")
    workers.env["PYTHONPATH"] = str(tmp_path)
    shops.write(a=section)
    shops["a"].api.behave(**behaviour)
    await shops["a"].enqueue(*ids(500, "a"))
    workers.start(processes=1, concurrency=40)
    await eventually(lambda: shops["a"].api.stats().requests > 0)

    for number in range(20):
        await shops["b"].enqueue(*ids(5, f"b{number}"))
        await shops.stored("b", ids(5, f"b{number}"), within=3.0)


async def test_a_killed_process_leaves_no_order_of_any_source_behind(shops: Shops, workers: Workers) -> None:
    for name in "abc":
        shops[name].api.behave(latency="0.3")
    command = workers.start(processes=2, concurrency=12)
    for name in "abc":
        await shops[name].enqueue(*ids(100, name))
    await shops.stored("a", ids(5, "a"))

    command.ask_child("worker-0", signal.SIGKILL)

    for name in "abc":
        await shops.stored(name, ids(100, name))
        await shops[name].finished()


async def test_an_order_that_kills_its_process_does_not_count_against_orders_of_another_source(
    shops: Shops, workers: Workers, tmp_path: Path
) -> None:
    (tmp_path / "code_of_a.py").write_text("import os\n\ndef kill(order, document):\n    os.kill(os.getpid(), 9)\n")
    workers.env["PYTHONPATH"] = str(tmp_path)
    shops.write(a='transform = "code_of_a:kill"')
    # The order dies while the other source's orders are in flight, and again when its process has started again.
    shops["b"].api.behave(latency="1")
    await shops["a"].enqueue("poison")
    await shops["b"].enqueue(*ids(10, "b"))

    command = workers.start(processes=1, concurrency=40, max_deliveries=7)

    await shops.stored("b", ids(10, "b"), within=60)
    await eventually(lambda: is_dead(shops["a"]))
    assert await shops["b"].dead() == []
    deliveries = [event["deliveries"] for event in command.events("entry_isolated", source="b")]
    assert max(deliveries, default=0) <= 5


async def test_suspects_of_a_source_leave_reads_and_slots_of_another_alone(shops: Shops, workers: Workers) -> None:
    shops.write(a="upstream.read_timeout = 300\nupstream.timeout = 300")
    await shops["a"].enqueue(*ids(3, "a"))
    await be_delivered_often(shops["a"])
    shops["a"].api.behave(hang_rate=1.0)
    command = workers.start(processes=1, concurrency=40, shutdown_grace=1)
    await command.says("entry_isolated", source="a")
    await eventually(lambda: shops["a"].api.stats().requests > 0, within=60)

    await shops["b"].enqueue(*ids(200, "b"))

    await shops.stored("b", ids(200, "b"), within=60)
    assert shops["a"].api.stats().requests == 1, "one suspect at a time, which still waits"


async def be_delivered_often(scene: Scene) -> None:
    """Have all entries released after five deliveries."""
    redis, stream = scene.redis, scene.keys.stream
    await redis.xgroup_create(stream, GROUP, "0")
    read = await redis.xreadgroup(GROUP, "dead", {stream: ">"})
    entries = [entry_id for entry_id, _ in read[0][1]]
    await redis.xclaim(stream, GROUP, "dead", 0, entries, time=0, retrycount=5)


async def is_dead(scene: Scene) -> bool:
    return [letter["reason"] for letter in await scene.dead()] == ["max_deliveries"]
