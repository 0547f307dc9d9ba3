"""`ingest bench adaptive`. The optimum is the best limit, formulas match the published ones, and counts are correct."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest
from support import Cli, closing_cli

from ingest.bench.adaptive.formulas import Arc, Gradient2
from ingest.bench.adaptive.limits import BEST, contenders
from ingest.bench.adaptive.live import Sample, found_in
from ingest.bench.adaptive.plan import LivePlan
from ingest.bench.adaptive.scenarios import Scenario
from ingest.bench.adaptive.score import compare
from ingest.bench.adaptive.world import End, Phase, World

STEP = Scenario("step", [Phase(12, 50, 0.2), Phase(12, 10, 0.2), Phase(12, 50, 0.2)])


@pytest.fixture
def bench() -> Iterator[Cli]:
    with closing_cli(dict(os.environ)) as cli:
        yield cli


def test_the_optimum_uses_the_capacity_and_nothing_waits() -> None:
    world = World(STEP.phases, STEP.queue, 0.0, Random(1), contenders(STEP.phases, 100, 1)[BEST])

    seconds = world.run()

    assert sum(second.documents for second in seconds) == pytest.approx(12 * (250 + 50 + 250), rel=0.03)
    assert sum(second.waited for second in seconds) / sum(second.documents for second in seconds) < 0.25


def test_the_same_seed_gives_the_same_figures() -> None:
    first, again = [[(run.limit, run.documents, run.rejected) for run in compare(7, [STEP])] for _ in range(2)]

    assert first == again
    assert [limit for limit, _, _ in first] == [BEST, "ours", "Gradient2", "ARC", "fixed"]


def windows(
    limit: Gradient2 | Arc, durations: list[float], per_window: int, end: End = End.DOCUMENT, now: float = 0.0
) -> list[int]:
    """The limit after windows of attempts of these durations, with the limit always reached."""
    values = []
    for duration in durations:
        for _ in range(per_window):
            limit.start(now)
        now += max(duration, 1.0)
        for _ in range(per_window):
            limit.end(now - duration, now, end)
        values.append(limit.value)
    return values


def test_what_a_live_phase_has_shown_follows_from_its_samples() -> None:
    plan = LivePlan(seconds=14, latency=(0.4, 0.6), concurrency=1_000)
    samples = [Sample(float(at), 800 * max(0, at - 4), 10 if at > 5 else 0, 400) for at in range(15)]

    found = found_in(plan, 400, samples)

    assert found.allowed == 800
    assert found.reached_after == 6
    assert found.throughput == pytest.approx(800)
    assert found.errors == pytest.approx(10 / 8_010)
    assert found.each[:6] == [0, 0, 0, 0, 800, 800]


@pytest.mark.long
def test_the_command_runs_real_workers_on_an_api_whose_capacity_changes(bench: Cli, tmp_path: Path) -> None:
    # Slow responses, with the same number of requests in flight and fewer per second.
    options = ("--live", "--seconds", "12", "--latency", "1800-2200", "--processes", "1")

    done = bench.run("bench", "adaptive", *options, "--output", str(tmp_path / "out"), "--json", timeout=170)

    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["tables"][0]["rows"]
    assert [row["capacity"] for row in rows] == [400, 50, 400]
    assert max(row["errors"] for row in rows) == 0
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        f"adaptive-live.{suffix}" for suffix in ("md", "json", "svg", "png")
    }
