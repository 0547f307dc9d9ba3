"""`ingest bench backpressure` counts correctly. Times are not asserted."""

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Cli, closing_cli

from ingest.bench.backpressure.calls import Calls, Latency
from ingest.bench.backpressure.compare import check
from ingest.bench.backpressure.trial import Finding, Trial
from ingest.bench.backpressure.ways import WAYS
from ingest.bench.errors import BenchFailed

CALLS, LIMIT = 1_000, 20


@pytest.fixture
def bench() -> Iterator[Cli]:
    with closing_cli(dict(os.environ)) as cli:
        yield cli


def test_every_way_makes_all_calls_within_the_limit_and_tasks_that_wait_take_memory(bench: Cli, tmp_path: Path) -> None:
    size = ("--calls", str(CALLS), "--limit", str(LIMIT), "--latency", "1-2")

    done = bench.run("bench", "backpressure", *size, "--output", str(tmp_path / "out"), "--json", timeout=110)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    runs = report["runs"]
    assert [(run["way"], run["traced"]) for run in runs] == [(way, traced) for way in WAYS for traced in (False, True)]
    assert {(run["done"], run["most_in_flight"]) for run in runs} == {(CALLS, LIMIT)}
    assert len({run["ideal_seconds"] for run in runs}) == 1, "the same draws for all"
    assert all(run["seconds"] >= run["ideal_seconds"] for run in runs)
    peak = {run["way"]: run["peak_bytes"] for run in runs if run["traced"]}
    assert peak["inside"] > 5 * max(peak["callback"], peak["ending"])
    assert [row["way"] for row in report["tables"][0]["rows"]] == list(WAYS.values())
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        f"backpressure.{suffix}" for suffix in ("md", "json", "svg", "png")
    }
    assert "minutes in total" in done.stderr.splitlines()[0]


async def test_calls_count_how_many_are_in_flight() -> None:
    calls = Calls([0.001] * 30)

    await asyncio.gather(*map(calls.make, range(20)))
    await asyncio.gather(*map(calls.make, range(20, 30)))

    assert (calls.done, calls.most_in_flight) == (30, 20)


@pytest.mark.parametrize(("done", "most_in_flight"), [(100, 11), (99, 10)])
def test_a_way_that_exceeds_the_limit_or_leaves_calls_out_is_no_result(done: int, most_in_flight: int) -> None:
    trial = Trial("inside", "1-2", calls=100, limit=10, seed=1, traced=False)
    found = Finding(1.0, 1.0, 1.0, done, most_in_flight, None)

    with pytest.raises(BenchFailed, match="semaphore inside the task"):
        check(trial, found)


@pytest.mark.parametrize("text", ["100", "200-100", "1.5-2", "-1-2", "a-b", ""])
def test_a_latency_that_is_no_range_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a range of milliseconds"):
        Latency.parse(text)


def test_the_same_seed_draws_the_same_latencies_within_the_range() -> None:
    latency = Latency.parse("100-110")

    drawn = latency.draws(1_000, seed=7)

    assert drawn == latency.draws(1_000, seed=7) != latency.draws(1_000, seed=8)
    assert 0.1 <= min(drawn) < max(drawn) <= 0.11


def test_a_directory_that_cannot_be_written_to_is_one_line_before_anything_is_measured(bench: Cli) -> None:
    done = bench.run("bench", "backpressure", "--calls", "1", "--output", "/dev/null/results")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ingest: cannot write to /dev/null/results: Not a directory\n"
