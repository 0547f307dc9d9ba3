"""`ingest bench http` gets correct responses and reports all figures in every case. Speed is not asserted."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import Cli, closing_cli

from ingest.bench.clients import http_request
from ingest.bench.http.compare import CASES

pytestmark = pytest.mark.long


@pytest.fixture
def bench() -> Iterator[Cli]:
    with closing_cli(dict(os.environ)) as cli:
        yield cli


def test_every_case_is_answered_right(bench: Cli, tmp_path: Path) -> None:
    # A streamed request of several pipelines to Redis.
    size = ("--clients", "5", "--seconds", "0.2", "--streamed", "2000")

    done = bench.run("bench", "http", *size, "--output", str(tmp_path / "out"), "--json", timeout=110)

    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    runs = report["runs"]
    assert [run["case"] for run in runs] == list(CASES)
    assert all(run["answered"] > 0 and run["errors"] == 0 for run in runs)
    assert all(0 < run["p50_ms"] <= run["p999_ms"] <= run["longest_ms"] for run in runs)
    assert all(run["server_cpu_us_per_request"] > 0 and run["peak_pss_mb"] > 0 for run in runs)
    ndjson = next(run for run in runs if run["case"] == "ndjson")
    assert ndjson["operation"] == "POST, 2,000 orders streamed"
    assert ndjson["orders_per_second"] == 2000 * ndjson["requests_per_second"]
    assert [len(table["rows"]) for table in report["tables"]] == [len(CASES), len(CASES)]
    assert {file.name for file in (tmp_path / "out").iterdir()} == {
        "http.md", "http.json", "http.svg", "http.png", "http-latency.svg", "http-latency.png",
    }  # fmt: skip


def test_an_unknown_case_is_refused(bench: Cli) -> None:
    done = bench.run("bench", "http", "--case", "nginx")

    assert done.returncode == 2
    assert "'nginx' is none of bare, gunicorn, post" in done.stderr


def test_a_request_is_written_as_http_has_it() -> None:
    assert http_request("POST", "/v1/orders", b"{}", content_type="application/json") == (
        b"POST /v1/orders HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}"
    )
    assert http_request("GET", "/x") == b"GET /x HTTP/1.1\r\nhost: localhost\r\n\r\n"
