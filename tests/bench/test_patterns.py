"""`ingest bench patterns` counts correctly. Times are not asserted."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import LiteralString

import pytest
from support import Cli, closing_cli

from ingest.bench.patterns.plan import PROFILES, Pattern
from ingest.bench.patterns.run import Runs
from ingest.bench.patterns.streams import WORKERS
from ingest.bench.stage import Servers, stage
from ingest.lab.errors import LabFailed
from ingest.lab.session import order_ids


@pytest.fixture
def bench() -> Iterator[Cli]:
    """The command in an unusable environment, which must not reach the bench."""
    with closing_cli({**os.environ, "INGEST_REDIS_URL": "nonsense", "INGEST_PROCESSES": "99"}) as cli:
        yield cli


@contextmanager
def prepared_runs(
    redis_url: str, dsn: str, orders: int, *api_options: str, sql: LiteralString = "SELECT"
) -> Iterator[Runs]:
    with stage(Servers(redis_url, dsn)) as on:
        on.sql(sql)
        yield Runs(on, on.api(*api_options), order_ids(orders, (), "BENCH"))


def not_shown(stored: int) -> None:
    del stored


def test_each_way_stores_every_order_and_is_measured(bench: Cli, tmp_path: Path) -> None:
    done = bench.run(
        "bench",
        "patterns",
        "--orders",
        "60",
        "--latency",
        "0.02",
        "--no-kill",
        "--json",
        "--output",
        str(tmp_path),
        timeout=110,
    )

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert report == json.loads((tmp_path / "patterns.json").read_text())
    (table,) = report["tables"]
    rows = {row["name"]: row for row in table["rows"]}
    assert list(rows) == [pattern.value for pattern in Pattern]
    for name, row in rows.items():
        assert (row["stored"], row["requests"], row["rejected"], row["errors_percent"]) == (60, 60, 0, 0), name
        assert 0 < row["peak_concurrency"] <= (PROFILES[Pattern(name)].in_flight or 60), name
        assert row["seconds"] > row["waiting_seconds"] > 0, name
        assert row["memory_mb"] > 0, name
        assert row["cpu_percent"] > 0, name
        assert ("published_seconds" in row) is (name != "service")
    assert (tmp_path / "patterns.png").read_bytes().startswith(b"\x89PNG")
    assert "ingest worker" in (tmp_path / "patterns.svg").read_text() + (tmp_path / "patterns.md").read_text()


@pytest.mark.nightly
def test_what_a_killed_naive_worker_had_read_stays_pending_and_is_lost(redis_url: str, dsn: str) -> None:
    with prepared_runs(redis_url, dsn, 600, "--latency", "0.02") as runs:
        killed = runs.kill(Pattern.STREAMS, not_shown)

    assert killed["process"] is not None
    assert killed["lost"] > 0
    # A worker may die between its row and its XACK.
    assert killed["lost"] <= killed["pending"] <= killed["lost"] + WORKERS
    assert (killed["stored"], killed["waiting"]) == (600 - killed["lost"], 0)


@pytest.mark.nightly
def test_a_killed_worker_of_the_service_loses_nothing(redis_url: str, dsn: str) -> None:
    # More than are in flight, so that some are still to come when half are stored.
    with prepared_runs(redis_url, dsn, 1500, "--latency", "0.05") as runs:
        killed = runs.kill(Pattern.SERVICE, not_shown)

    assert killed["process"] is not None
    assert (killed["stored"], killed["lost"], killed["waiting"], killed["pending"]) == (1500, 0, 0, 0)


@pytest.mark.nightly
def test_a_killed_program_loses_all_that_it_had_not_stored(redis_url: str, dsn: str) -> None:
    with prepared_runs(redis_url, dsn, 240, "--latency", "0.05") as runs:
        alone, pool = (runs.kill(pattern, not_shown) for pattern in (Pattern.SEMAPHORE, Pattern.PROCESSES))

    for killed in (alone, pool):
        assert killed["process"] is not None
        assert 120 <= killed["stored_before"] <= killed["stored"] < 240
        assert killed["lost"] == 240 - killed["stored"]


@pytest.mark.nightly
def test_what_the_api_refuses_is_an_error_of_a_pattern_that_does_not_try_again(redis_url: str, dsn: str) -> None:
    with prepared_runs(redis_url, dsn, 100, "--latency", "0.3", "--concurrency-limit", "10") as runs:
        measured = runs.measure(Pattern.GATHER, not_shown)

    assert 0 < measured["rejected"] < 100
    assert measured["stored"] == 100 - measured["rejected"]
    assert measured["requests"] == 100


@pytest.mark.nightly
def test_a_program_that_breaks_is_no_result(redis_url: str, dsn: str) -> None:
    refusing = "ALTER TABLE orders ADD CHECK (false)"

    with (
        prepared_runs(redis_url, dsn, 10, sql=refusing) as runs,
        pytest.raises(LabFailed, match="did not succeed") as failed,
    ):
        runs.measure(Pattern.PROCESSES, not_shown)

    kept = Path(str(failed.value).rpartition(" ")[2])
    assert "CheckViolation" in kept.read_text()
    kept.unlink()
