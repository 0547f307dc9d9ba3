"""`ingest bench pipeline` at small sizes: the real command on its own servers. Times are not asserted."""

import asyncio
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest
from redis import Redis
from support import Cli, closing_cli, connected

from ingest.bench.pipeline.figures import medians, quantile
from ingest.bench.pipeline.go_build import is_built
from ingest.bench.pipeline.limits import limit_notes
from ingest.bench.pipeline.session import in_turn
from ingest.bench.pipeline.sweep import knee
from ingest.cli.trial.bench.pipeline import pipeline
from ingest.domain.errors import ConfigError
from ingest.lab.upstream.latency import Latency

pytestmark = pytest.mark.long

# Building it takes minutes of CPU time, once: `make bench ARGS="pipeline --vs go"` does.
HAS_GO = is_built()
"""Whether this machine has a Go toolchain, which the bare loop in Go needs."""
COST = (
    "own_cpu_us_per_order",
    "redis_cpu_us_per_order",
    "postgres_cpu_us_per_order",
    "api_cpu_us_per_order",
    "api_busy_cores",
    "peak_pss_mb",
)

_AN_ORDER = """
INSERT INTO orders VALUES ('1', 'placed', 'GBP', NULL, NULL, now(), NULL, 0, 0, '[]', now(), now(), 1, now(), now())
"""


@pytest.fixture
def cli() -> Iterator[Cli]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INGEST_")}
    with closing_cli(inherited) as running:
        yield running


@pytest.fixture
def given(redis_url: str, dsn: str) -> tuple[str, ...]:
    """Servers that are there already."""
    return "--redis-url", redis_url, "--postgres-dsn", dsn


def sql(dsn: str, statement: str) -> list[Any]:
    """The first column of the result of a statement."""

    async def fetch() -> list[Any]:
        async with connected(dsn) as connection:
            return [row[0] for row in await connection.fetch(statement)]

    return asyncio.run(fetch())


def report(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    read: dict[str, Any] = json.loads(done.stdout)
    return read


def assert_all_stored(run: dict[str, Any], orders: int) -> None:
    counts = {name: run[name] for name in ("stored", "lost", "dead_letters", "still_queued", "wrong", "exit_codes")}
    assert counts == {
        "stored": orders,
        "lost": 0,
        "dead_letters": 0,
        "still_queued": 0,
        "wrong": 0,
        "exit_codes": [0],
    }
    assert run["compared"] > 0


@pytest.mark.parametrize("rivals", [("bare", "go") if HAS_GO else ("bare",)], ids=" and ".join)
@pytest.mark.parametrize("transport", [(), pytest.param(("--tls",), marks=pytest.mark.nightly)], ids=["http", "https"])
def test_the_service_and_bare_loops_are_measured_side_by_side_and_every_order_is_accounted_for(
    cli: Cli, tmp_path: Path, rivals: tuple[str, ...], transport: tuple[str, ...]
) -> None:
    # So many that each server uses more than one tick of the clock of processor times.
    small = ("--orders", "2000", "--latency", "0-0.01", "--in-flight", "50", "--vs", ",".join(rivals), *transport)

    said = report(cli.run("bench", "pipeline", *small, "--json", "--output", str(tmp_path), timeout=110))

    assert [run["contender"] for run in said["runs"]] == ["service", *rivals]
    for run in said["runs"]:
        assert_all_stored(run, 2_000)
        assert run["api_scheme"] == ("https" if transport else "http")
        assert run["requests"] == 2_000
        assert run["duplicate_fetches"] == 0
        assert run["peak_concurrency"] <= 50
        assert all(run[name] > 0 for name in COST)
        assert run["own_cpu_us_per_order_without_startup"] < run["own_cpu_us_per_order"]
        assert 0 < run["redis_round_trips_per_order"] < 10
        assert run["commit_clock"] == "pg_xact_commit_timestamp(xmin)"
        assert 0 < run["request_to_commit_p50_ms"] <= run["request_to_commit_p99_ms"]
        assert 0 < run["redis_bytes_per_queued_order"] < 1_000
    assert json.loads((tmp_path / "pipeline.json").read_text()) == said
    assert any("over HTTPS" in note for note in said["notes"]) == bool(transport)
    assert any("with real orders of 2 KB on average" in note for note in said["notes"]), "2,000 of those bundled"
    assert "| service   |" in (tmp_path / "pipeline.md").read_text()
    assert (tmp_path / "pipeline.png").read_bytes().startswith(b"\x89PNG")


def test_a_limit_that_is_none_of_the_contender_is_told() -> None:
    rows = [
        {"contender": name, "api_busy_cores": api, "busy_cores": machine}
        for name, api, machine in (("service", 0.5, 1.7), ("bare", None, None), ("go", 0.93, 1.95))
    ]

    api, machine = limit_notes(rows, cores=2)

    assert "was the limit of go, because it used 0.93" in api
    assert "All 2 cores were busy during the runs of go," in machine
    assert limit_notes(rows[:2], cores=2) == []
    assert "of 0.1, 0.2," in limit_notes([{**rows[2], "swept": value} for value in ("0.1", "0.2")], cores=4)[0]


def test_contenders_take_turns_there_and_back_again() -> None:
    assert in_turn(["service", "bare"], 3) == ["service", "bare", "bare", "service", "service", "bare"]


def test_of_several_runs_the_median_is_shown_but_of_losses_the_worst() -> None:
    runs = [
        {"contender": "service", "orders_per_s": rate, "lost": lost} for rate, lost in ((3.0, 0), (9.0, 1), (4.0, 0))
    ]

    assert medians(runs) == {"contender": "service", "orders_per_s": 4.0, "lost": 1}


@pytest.mark.parametrize(
    ("latency", "mean", "median", "p99"),
    [("0.1", 0.1, 0.1, 0.1), ("0.1-0.2", 0.15, 0.15, 0.199), ("lognormal:0.1,0.5", 0.11331, 0.1, 0.32)],
)
def test_what_the_api_is_known_to_take_is_computed_as_it_draws_it(
    latency: str, mean: float, median: float, p99: float
) -> None:
    parsed, chance = Latency.parse(latency), Random(1)
    drawn = sorted(parsed.draw(chance) for _ in range(20_000))

    assert [parsed.mean, parsed.quantile(0.5), parsed.quantile(0.99)] == pytest.approx([mean, median, p99], rel=1e-3)
    assert [sum(drawn) / len(drawn), quantile(drawn, 0.5), quantile(drawn, 0.99)] == pytest.approx(
        [mean, median, p99], rel=0.03
    )


def test_the_knee_is_the_first_value_that_is_good_enough_or_the_last_one_where_more_is_worse() -> None:
    assert knee([1, 2, 4, 8], [100.0, 190.0, 200.0, 150.0]) == 2
    assert knee([1, 2, 4], [100.0, 200.0, 400.0]) == 4
    assert knee(["0.1", "0.2", "0.4"], [400.0, 390.0, 200.0]) == "0.2"


@pytest.mark.nightly
def test_orders_that_arrive_one_by_one_are_timed_from_their_announcement_and_given_servers_left_clean(
    cli: Cli, given: tuple[str, ...], redis_url: str, dsn: str
) -> None:
    sql(dsn, "INSERT INTO erased_orders VALUES ('for-good')")
    arriving = ("--orders", "150", "--rate", "300", "--latency", "0.02", "--in-flight", "50", "--processes", "1")

    (run,) = report(cli.run("bench", "pipeline", *given, *arriving, "--json", timeout=110))["runs"]

    assert_all_stored(run, 150)
    # No order can be stored before the external API has responded, and there is no backlog to wait for.
    assert 19 < run["latency_p50_ms"] <= run["latency_p99_ms"] <= run["latency_p999_ms"]
    assert run["latency_p50_above_api_ms"] == pytest.approx(run["latency_p50_ms"] - 20, abs=0.02)
    assert run["load_late_p99_ms"] > 0
    assert sql(dsn, "SELECT order_id FROM orders UNION SELECT order_id FROM erased_orders") == ["for-good"]
    with closing(Redis.from_url(redis_url)) as client:
        assert not client.keys("ingest:{ingest-bench}:*")


@pytest.mark.nightly
@pytest.mark.parametrize("kill", ["worker", "command"])
def test_a_kill_on_the_way_is_timed_and_what_it_cost_is_counted(cli: Cli, given: tuple[str, ...], kill: str) -> None:
    # Each order takes long enough for some to be in flight during the kill, even on a busy machine.
    doomed = ("--orders", "300", "--latency", "0.3-0.5", "--in-flight", "60", "--kill-at", "0.3", "--kill", kill)

    (run,) = report(cli.run("bench", "pipeline", *given, *doomed, "--json", timeout=110))["runs"]

    assert_all_stored(run, 300)
    assert run["requests"] - run["duplicate_fetches"] == 300
    # Orders that the killed process had requested and not acked were requested once more.
    assert 0 < run["duplicate_fetches"] < 300
    assert 0 < run["seconds_from_kill_to_recovered"] <= run["seconds_from_kill_to_done"]


def test_a_table_that_is_not_empty_is_left_alone(cli: Cli, given: tuple[str, ...], dsn: str) -> None:
    sql(dsn, _AN_ORDER)

    refused = cli.run("bench", "pipeline", *given, "--orders", "10")

    assert refused.returncode == 1
    assert "the table 'orders' of the given database is not empty" in refused.stderr
    assert sql(dsn, "SELECT order_id FROM orders") == ["1"]


@pytest.mark.nightly
def test_a_sweep_has_a_row_for_each_value_and_names_its_knee(cli: Cli, given: tuple[str, ...], tmp_path: Path) -> None:
    swept = ("--sweep", "in-flight=2,40", "--processes", "1", "--orders", "100", "--latency", "0.01")

    said = report(cli.run("bench", "pipeline", *given, *swept, "--json", "--output", str(tmp_path), timeout=110))

    (table,) = said["tables"]
    assert [(row["swept"], row["peak_concurrency"] <= row["swept"]) for row in table["rows"]] == [(2, True), (40, True)]
    assert said["settings"]["knee"] == 40
    for run in said["runs"]:
        assert_all_stored(run, 100)
    assert (tmp_path / "pipeline-sweep.png").read_bytes().startswith(b"\x89PNG")


def test_without_a_go_toolchain_the_bare_loop_in_go_is_refused_in_one_line(cli: Cli, tmp_path: Path) -> None:
    refused = cli.run("bench", "pipeline", "--vs", "bare,go", env={"PATH": str(tmp_path)})

    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "--vs go needs a Go toolchain (go) on PATH" in refused.stderr


def test_a_bare_loop_in_go_that_cannot_be_built_ends_the_bench_before_it_starts_anything(
    cli: Cli, tmp_path: Path
) -> None:
    toolchain = tmp_path / "go"
    toolchain.write_text("#!/bin/sh\n[ $1 = version ] || { echo no such module >&2; exit 3; }\n")
    toolchain.chmod(0o755)

    failed = cli.run("bench", "pipeline", "--vs", "go", env={"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)})

    assert failed.returncode == 1
    assert "`go build` failed with exit code 3" in failed.stderr
    assert "no such module" in failed.stderr
    assert "starting PostgreSQL" not in failed.stderr
    assert list((tmp_path / "order-ingest" / "bench").iterdir()) == []


def test_wrong_use_is_one_line_and_exit_code_2(cli: Cli) -> None:
    refused = cli.run("bench", "pipeline", "--kill-at", "1.5")

    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert "--kill-at" in refused.stderr


@pytest.mark.parametrize(
    ("wrong", "names"),
    [
        ({"kill": "command"}, "--kill goes with --kill-at"),
        ({"kill_at": 0.5, "vs": ["bare"]}, "--kill-at and --vs"),
        ({"kill_at": 0.5, "kill": "command", "processes": 3}, "--processes"),
        ({"api_limit": 10, "vs": ["bare"]}, "--api-limit and --vs"),
        ({"vs": ["wrk"]}, "--vs wrk"),
        ({"sweep": "orders=1,2"}, "--sweep"),
        ({"sweep": "in-flight=1,two"}, "--sweep in-flight"),
        ({"sweep": "in-flight=100"}, "two or more"),
        ({"sweep": "rate=100,200", "vs": ["bare"]}, "--sweep"),
        ({"latency": "slow"}, "--latency"),
        ({"redis_url": "localhost:6379"}, "--redis-url must start with redis://"),
        ({"redis_url": "redis://localhost:6379/0?timeout=soon"}, "--redis-url contains an option"),
        ({"in_flight": 2, "processes": 3}, "--in-flight"),
    ],
)
def test_options_that_mean_nothing_together_are_refused(wrong: dict[str, Any], names: str) -> None:
    with pytest.raises(ConfigError, match=names):
        pipeline(**wrong)
