"""`ingest bench isolation` measures orders of one source while another one fails. Times are not asserted."""

import json
import os

import pytest
from support import closing_cli

pytestmark = pytest.mark.long


def test_it_measures_one_source_while_the_other_one_fails() -> None:
    with closing_cli(dict(os.environ)) as bench:
        size = ("--seconds", "1", "--rate", "20", "--latency", "0.01", "--processes", "1", "--fault", "401")

        done = bench.run("bench", "isolation", *size, "--json", timeout=110)

    assert done.returncode == 0, done.stderr
    alone, failing, again = json.loads(done.stdout)["runs"]
    assert [run["orders"] for run in (alone, failing, again)] == [20, 20, 20]
    assert alone["failing_requests"] == again["failing_requests"] == 0
    assert failing["failing_requests"] > 0
    assert failing["failing_stored"] == 0
