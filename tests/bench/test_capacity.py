"""`ingest capacity` predicts the measurements of `ingest bench pipeline` at three points, within a tolerance."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from support import Cli, closing_cli

pytestmark = pytest.mark.long


@pytest.fixture
def cli() -> Iterator[Cli]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("INGEST_")}
    with closing_cli(inherited) as running:
        yield running


def planned(cli: Cli, *options: str) -> dict[str, Any]:
    done = cli.run("capacity", *options, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measured(cli: Cli, redis_url: str, dsn: str, *options: str) -> dict[str, Any]:
    given = ("--redis-url", redis_url, "--postgres-dsn", dsn, *options)
    done = cli.run("bench", "pipeline", *given, "--json", timeout=110)
    assert done.returncode == 0, done.stderr
    (run,) = json.loads(done.stdout)["runs"]
    assert (run["lost"], run["dead_letters"], run["still_queued"]) == (0, 0, 0)
    return dict(run)


@pytest.mark.parametrize(
    ("rate", "latency", "orders"), [("100", "0.5", "400"), pytest.param("200", "0.2", "600", marks=pytest.mark.nightly)]
)
def test_the_planned_orders_in_flight_reach_the_rate_and_memory_is_as_planned(
    cli: Cli, redis_url: str, dsn: str, rate: str, latency: str, orders: str
) -> None:
    found = planned(cli, "--rate", rate, "--latency", latency)
    in_flight = found["processes"] * found["concurrency"]

    run = measured(
        cli, redis_url, dsn, "--orders", orders, "--latency", latency, "--in-flight", str(in_flight),
        "--processes", str(found["processes"]),
    )  # fmt: skip

    # With a backlog all slots are busy, but for the start and the end, and for a machine that has other work.
    assert run["peak_concurrency"] == pytest.approx(in_flight, rel=0.1)
    reachable = in_flight / float(latency)
    assert max(0.5 * reachable, 0.6 * float(rate)) < run["orders_per_s"] <= 1.15 * reachable
    assert found["host_memory"] / 1e6 == pytest.approx(run["peak_pss_mb"], rel=0.5)


@pytest.mark.nightly
def test_orders_that_arrive_at_the_rate_need_no_more_in_flight_than_planned(cli: Cli, redis_url: str, dsn: str) -> None:
    found = planned(cli, "--rate", "100", "--latency", "0.4")

    run = measured(
        cli, redis_url, dsn, "--orders", "500", "--rate", "100", "--latency", "0.4", "--in-flight", "400",
        "--processes", "2",
    )  # fmt: skip

    # The limit is far higher. The usage matches the formula, and is only higher if the machine was late with responses.
    assert 0.9 * found["in_flight"] < run["peak_concurrency"] <= 2.5 * found["slots"] < 400
