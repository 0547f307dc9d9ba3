"""What PostgreSQL, aiohttp and prometheus_client do that the store, the client and the metrics are built around."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import aiohttp
import asyncpg
import pytest
from listener import listening
from prometheus_client import CollectorRegistry
from prometheus_client.multiprocess import MultiProcessCollector
from prometheus_client.openmetrics.exposition import generate_latest
from support import becomes, connected, eventually

pytestmark = pytest.mark.each_server

UPSERT = """
INSERT INTO fact SELECT * FROM unnest($1::text[], $2::int[])
ON CONFLICT (key) DO UPDATE SET value = excluded.value WHERE fact.value <> excluded.value
RETURNING key, xmax = 0 AS inserted
"""


@pytest.fixture
async def table(dsn: str) -> str:
    """The DSN of a database with a table of keys and values."""
    async with connected(dsn) as connection:
        await connection.execute("CREATE TABLE fact (key text PRIMARY KEY, value int)")
    return dsn


# -- PostgreSQL ---------------------------------------------------------------------------------------------------


async def test_an_upsert_returns_what_it_inserted_and_what_it_changed_and_nothing_unchanged(table: str) -> None:
    async with connected(table) as connection:
        await connection.execute(UPSERT, ["changed", "unchanged"], [1, 1])

        returned = await connection.fetch(UPSERT, ["changed", "new", "unchanged"], [2, 2, 1])

    assert {row["key"]: row["inserted"] for row in returned} == {"changed": False, "new": True}


async def test_the_same_key_twice_in_one_batch_is_an_error(table: str) -> None:
    async with connected(table) as connection:
        with pytest.raises(asyncpg.CardinalityViolationError):
            await connection.execute(UPSERT, ["a", "a"], [1, 2])


@pytest.mark.parametrize(("second_batch", "deadlocks"), [(["c", "a"], 1), (["a", "c"], 0)], ids=["unsorted", "sorted"])
async def test_overlapping_batches_deadlock_unless_their_rows_are_sorted(
    table: str, second_batch: list[str], deadlocks: int
) -> None:
    async with connected(table) as holder, connected(table) as first, connected(table) as second:

        async def waiting() -> int:
            return await holder.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
            )

        async def wait_for(count: int) -> None:
            await becomes(waiting, count)

        await holder.execute(UPSERT, ["a", "b", "c"], [0, 0, 0])
        async with holder.transaction():
            await holder.execute("SELECT FROM fact WHERE key = 'b' FOR UPDATE")
            upserts = [asyncio.create_task(first.execute(UPSERT, ["a", "b", "c"], [1, 1, 1]))]
            await wait_for(1)  # it has a, and waits for b
            upserts.append(asyncio.create_task(second.execute(UPSERT, second_batch, [2, 2])))
            await wait_for(2)  # it waits for a, and if it came to c first, it has that
        ended = await asyncio.gather(*upserts, return_exceptions=True)

    assert sum(isinstance(end, asyncpg.DeadlockDetectedError) for end in ended) == deadlocks


# -- aiohttp ------------------------------------------------------------------------------------------------------


async def test_the_pool_of_aiohttp_has_a_hundred_connections_by_default() -> None:
    async with aiohttp.TCPConnector() as connector:
        assert connector.limit == 100


async def test_the_total_timeout_of_aiohttp_includes_the_wait_for_a_free_connection() -> None:
    connections = 0
    released = asyncio.Event()

    async def never_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        del reader, writer
        await released.wait()

    async with (
        listening(never_answer) as port,
        aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=aiohttp.TCPConnector(limit=1)) as session,
    ):
        holding = asyncio.create_task(session.get("/"))
        await eventually(lambda: connections == 1)

        with pytest.raises(TimeoutError):
            await session.get("/", timeout=aiohttp.ClientTimeout(total=0.2, connect=60))
        assert connections == 1

        released.set()
        await asyncio.gather(holding, return_exceptions=True)


# -- prometheus_client --------------------------------------------------------------------------------------------

COUNTS = """
import sys
from prometheus_client import Counter, REGISTRY, values
from prometheus_client.core import GaugeMetricFamily
if sys.argv[1:]:
    values.ValueClass = values.MultiProcessValue(lambda: sys.argv[1])
class Custom:
    def collect(self):
        yield GaugeMetricFamily("custom", "from a collector of our own", value=1)
REGISTRY.register(Custom())
counter = Counter("seen", "orders")
counter.inc(exemplar={"trace_id": "abc"})
print(int(counter._value.get()))
"""


def count_in_a_process(folder: Path, *process: str) -> int:
    """Count one order in a separate process, optionally with a given number, and return the counter's value there."""
    environment = {**os.environ, "PROMETHEUS_MULTIPROC_DIR": str(folder)}
    command = [sys.executable, "-c", COUNTS, *process]
    return int(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)


def scrape(folder: Path) -> str:
    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))
    return generate_latest(registry).decode()


def test_multiprocess_metrics_keep_a_file_for_every_process_that_ever_was(tmp_path: Path) -> None:
    for _ in range(3):
        count_in_a_process(tmp_path)

    assert len(list(tmp_path.glob("*.db"))) == 3
    assert "seen_total 3.0" in scrape(tmp_path)


def test_multiprocess_metrics_of_a_process_go_on_from_those_of_a_dead_one_with_its_number(tmp_path: Path) -> None:
    counted = [count_in_a_process(tmp_path, "7") for _ in range(2)]

    assert counted == [1, 2]


def test_multiprocess_metrics_have_no_exemplars_and_no_custom_collectors(tmp_path: Path) -> None:
    count_in_a_process(tmp_path)

    shown = scrape(tmp_path)

    assert "seen_total 1.0\n" in shown
    assert "trace_id" not in shown
    assert "custom" not in shown
