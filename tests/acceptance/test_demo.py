"""`ingest demo` as users run it. The report is correct, and all parts are removed, however it ends."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from urllib.parse import urlsplit

import asyncpg
import msgspec
import psutil
import pytest
import redis
from consumers import Consumer
from process_state import command_of, is_alive
from servers.get import REDIS_7
from support import Cli, closing_cli, eventually_sync

from ingest.demo.plan import Plan
from ingest.demo.result import check, is_drained
from ingest.domain.deliveries.delivery import DeadReason
from ingest.domain.orders.order import decode_order, parse_order_id
from ingest.domain.orders.order_row import OrderRow
from ingest.lab.servers import EmbeddedServers
from ingest.lab.upstream.samples import sample_orders
from ingest.operations.reconcile import Backends
from ingest.queue.produce.producer import Producer
from ingest.store.orders.order_store import OrderStore

# So slow that it still runs whenever the test gets to it.
SLOWLY = ("demo", "--orders", "20000", "--processes", "1", "--concurrency", "10")


@pytest.fixture
def demo() -> Iterator[Cli]:
    """The command in an unusable environment, which must not reach the demo."""
    with closing_cli({**os.environ, "INGEST_REDIS_URL": "nonsense", "ingest_stream": "elsewhere"}) as cli:
        yield cli


def processes_once_fetching(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """All processes of a demo, once its workers fetch orders."""
    assert process.stderr is not None
    for line in process.stderr:
        if "orders stored" in line:
            break
    return psutil.Process(process.pid).children(recursive=True)


def directory_of(family: list[psutil.Process]) -> Path:
    """The private directory, which a watchdog will remove."""
    (directory,) = {
        Path(command[-1])
        for command in map(command_of, family)
        if any(part.endswith("watchdog.py") for part in command) and command[-1].startswith("/")
    }
    return directory


def test_without_a_place_for_its_files_it_is_one_line(demo: Cli) -> None:
    # To a limited size of files, no directory is usable, as on a read-only file system.
    limited = ["sh", "-c", 'ulimit -f 0; exec "$@"', "sh", sys.executable, "-m", "ingest", "demo"]

    done = subprocess.run(limited, env=demo.env, capture_output=True, text=True, timeout=60, check=False)

    said = done.stderr.splitlines()[-1]
    assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
    assert said.startswith("ingest: no temporary directory can be created: ")


def test_stores_every_order_once_says_so_and_keeps_the_servers_until_the_printed_command_stops_them(
    demo: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("INGEST_POSTGRES_DSN=nonsense\n")
    monkeypatch.chdir(tmp_path)

    done = demo.run("demo", "--orders", "300", "--concurrency", "50", "--keep", "--json", timeout=110)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert_kept_until_stopped(report["kept"], orders=300)
    assert report["ok"] is True
    assert (report["orders"], report["stored"], report["compared"]) == (300, 300, 300)
    for fault in ("lost", "unfinished", "unexpected", "dead", "written_twice", "wrong", "fetched_twice"):
        assert report[fault] == 0, fault
    assert report["requests"] == 300 + sum(report["faults"].values())
    assert report["retries_immediate"] + report["retries_scheduled"] == sum(report["faults"].values())
    assert report["peak_concurrency"] <= 100
    assert 0.1 <= report["ideal_seconds"] <= report["wall_seconds"]
    assert report["peak_memory"] > 0
    assert report["examples"][0]["order_id"] == "536365"
    assert report["examples"][0]["total"] == "139.12"


def test_prints_a_report_for_people(demo: Cli) -> None:
    done = demo.run("demo", "--orders", "40", "--concurrency", "50", timeout=110)

    assert done.returncode == 0, done.stderr
    rows = {line[:14].strip(): line[14:].split() for line in done.stdout.splitlines()}
    assert rows["orders stored"][:3] == ["40", "of", "40"]
    assert rows["lost"][0] == rows["written twice"][0] == rows["wrong content"][0] == "0"
    assert rows["wrong content"][2] == "40"
    assert "demo --keep" in done.stdout


def test_orders_beyond_the_bundled_ones_are_made_up_by_the_simulated_api() -> None:
    bundled = sample_orders()
    plan = Plan(orders=len(bundled) + 40, processes=2, concurrency=500)

    order_ids = plan.order_ids(bundled)

    assert len(set(order_ids)) == 10_040
    assert order_ids[:10_000] == list(bundled)
    assert list(map(parse_order_id, order_ids[10_000:])) == order_ids[10_000:]
    assert "--any-id" in plan.api_options(bundled)
    assert "--any-id" not in Plan(orders=10_000, processes=2, concurrency=500).api_options(bundled)


@pytest.mark.parametrize(
    ("ending", "code"),
    [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.nightly), (signal.SIGKILL, -9)],
)
def test_leaves_nothing_behind_when_it_is_ended(demo: Cli, ending: signal.Signals, code: int) -> None:
    process = demo.start(*SLOWLY)
    family = processes_once_fetching(process)
    directory = directory_of(family)
    assert directory.is_dir()

    process.send_signal(ending)

    assert process.wait(timeout=60) == code
    eventually_sync(lambda: not any(map(is_alive, family)))
    eventually_sync(lambda: not directory.exists())


def test_names_the_log_of_workers_that_died(demo: Cli) -> None:
    process = demo.start(*SLOWLY)
    family = processes_once_fetching(process)
    workers = next(member for member in family if "worker" in command_of(member))

    workers.kill()
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 1
    last_line = errors.splitlines()[-1]
    assert last_line.startswith("ingest: `ingest worker` ended unexpectedly; its log is kept in ")
    kept = Path(last_line.rpartition(" ")[2])
    assert "process_started" in kept.read_text()
    kept.unlink()
    eventually_sync(lambda: not any(map(is_alive, family)))


def assert_kept_until_stopped(kept: dict[str, str], orders: int) -> None:
    """Whether the servers are reachable, until the printed command stops them."""
    ports = [urlsplit(kept[name]).port for name in ("postgres_dsn", "redis_url", "upstream_url")]

    try:
        stored = asyncio.run(count_orders(kept["postgres_dsn"]))
        with redis.Redis.from_url(kept["redis_url"]) as queue:
            assert queue.ping()
        assert [ping(client, kept["redis_url"]) for client in redis_clients()] == ["PONG\n"] * len(redis_clients())
        assert all(map(is_listened_on, ports))
    finally:
        stopped = subprocess.run(kept["stop_command"], shell=True, capture_output=True, text=True, check=False)

    assert stored == orders
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert not Path(kept["stop_command"].rpartition(" ")[2]).exists()
    eventually_sync(lambda: not any(map(is_listened_on, ports)))


def redis_clients() -> list[str]:
    """The available command-line clients, on PATH and in the unpacked Redis 7 of the tests."""
    unpacked = str(REDIS_7.binary.parent / "usr" / "bin" / "redis-cli")
    return [client for name in ("valkey-cli", "redis-cli", unpacked) if (client := shutil.which(name))]


def ping(client: str, url: str) -> str:
    libraries = ":".join({str(library.parent) for library in REDIS_7.binary.parent.glob("usr/lib/**/*.so*")})
    command = [client, "--no-auth-warning", "-u", url, "PING"]
    environment = {**os.environ, "LD_LIBRARY_PATH": libraries}
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=30, check=False).stdout


def test_the_result_counts_what_is_lost_written_twice_and_wrong(dsn: str, servers: EmbeddedServers) -> None:
    redis_url = servers.redis_url
    documents = dict(islice(sample_orders().items(), 3))
    right, changed, wrong = documents
    made_up = documents[right].replace(f'"id":"{right}"'.encode(), b'"id":"DEMO-1"', 1)
    asyncio.run(store(dsn, {**documents, "DEMO-1": made_up}))
    asyncio.run(leave_in_queue(redis_url, waiting="W1", retried="R1", dead="D1"))
    documents[wrong] = documents[wrong].replace(b'"quantity":', b'"quantity":1', 1)
    with redis.Redis.from_url(redis_url) as queue:
        try:
            enqueued = [right, changed, wrong, "DEMO-1", "W1", "R1", "D1", "L1", "L2"]
            found = asyncio.run(check(Backends(redis_url, dsn), queue, enqueued, documents))
            drained = is_drained(queue)
        finally:
            queue.delete(*queue.keys("ingest:{orders}:*"))

    assert (found.stored, found.compared, found.unexpected) == (4, 3, 0), "a generated order cannot be compared"
    assert (found.lost, found.dead, found.unfinished) == (2, 1, 2)
    assert found.written_twice == 1
    assert found.wrong == 1
    assert not drained


async def store(dsn: str, documents: dict[str, bytes]) -> None:
    """Store all, then the first again as confirmed by a later fetch, and the second in another version and back."""
    fetched_at = datetime.now(UTC) - timedelta(minutes=1)
    rows = [OrderRow.of(decode_order(document, key), fetched_at, 1, 0.0) for key, document in documents.items()]
    other = msgspec.structs.replace(rows[1], status="cancelled")
    async with OrderStore.open(dsn) as orders:
        await orders.upsert([rows[0], other, *rows[2:]])
        confirmed = msgspec.structs.replace(rows[0], fetched_at=fetched_at + timedelta(minutes=2))
        await orders.upsert([confirmed, msgspec.structs.replace(rows[1], fetched_at=fetched_at + timedelta(seconds=1))])


async def leave_in_queue(redis_url: str, *, waiting: str, retried: str, dead: str) -> None:
    async with Producer.connect(redis_url, "orders") as producer:
        await producer.enqueue([retried, dead, waiting])
    async with Consumer.open(redis_url, "orders", "ingest", "c", 1.0) as consumer:
        await consumer.ensure_group()
        first, second = await consumer.read(2, 1.0)
        await consumer.reschedule(first, 3600.0, 2)
        await consumer.dead_letter(second, DeadReason.NOT_FOUND, "HTTP 404")


async def count_orders(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return await connection.fetchval("SELECT count(*) FROM orders")
    finally:
        await connection.close()


def is_listened_on(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10):
            return True
    except ConnectionRefusedError:
        return False
