"""The output and exit codes of `ingest capacity`, which needs neither servers nor settings."""

import json
import re
from pathlib import Path

from support import Cli

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "capacity.md"


def test_the_plan_fits_80_columns_and_names_the_settings_and_what_limits_first(plain: Cli) -> None:
    done = plain.run("capacity", "--rate", "2000", "--latency", "0.3", env={"COLUMNS": "80"})

    lines = done.stdout.splitlines()
    shown = {" ".join(line.split()) for line in lines}
    assert (done.returncode, done.stderr) == (0, "")
    assert max(map(len, lines)) <= 80
    assert {
        "orders in flight 600 on average, 674 to allow",
        "INGEST_CONCURRENCY 337",
        "open files 465 of one process",
    } <= shown
    assert next(line for line in lines if line.startswith("limits")).endswith("Redis' core, with orders enqueued one")


def test_the_documentation_shows_the_plan_that_the_command_prints(plain: Cli) -> None:
    page = PAGE.read_text(encoding="utf-8")
    command, shown = re.findall(r"^```(?:sh)?\n(.*?)^```", page, re.MULTILINE | re.DOTALL)[:2]

    done = plain.run(*command.split()[1:], env={"COLUMNS": "80"})

    assert command.startswith("ingest capacity")
    assert done.stdout == shown


def test_a_rate_beyond_what_the_api_permits_is_exit_code_1_and_said(plain: Cli) -> None:
    given = ("capacity", "--rate", "50", "--latency", "0.8", "--latency-p99", "4", "--quota", "40")

    said, as_json = plain.run(*given), plain.run(*given, "--json")

    found = json.loads(as_json.stdout)
    assert (said.returncode, as_json.returncode) == (1, 1)
    assert "not reached              40 orders/s are stored" in said.stdout
    assert (found["reached"], found["rate"], found["timeout"]) == (False, 40, 12)
    assert found["limits"][0] == {"what": "the API's requests per second", "orders_per_s": 40}
    assert found["demand"]["rate"] == 50


def test_sources_are_planned_together_with_a_share_for_each(plain: Cli) -> None:
    of_sources = ("--source", "shop-de=200/0.1", "--source", "warehouse=50/0.6")

    found = json.loads(plain.run("capacity", *of_sources, "--json").stdout)
    alike = json.loads(plain.run("capacity", "--rate", "250", "--latency", "0.2", "--json").stdout)
    with_rate = plain.run("capacity", *of_sources, "--rate", "1")
    malformed = plain.run("capacity", "--source", "shop-de=200")

    assert found.pop("sources") == [
        {"source": "shop-de", "concurrency": 17, "timeout": 5},
        {"source": "warehouse", "concurrency": 24, "timeout": 6},
    ]
    assert found == alike
    assert (with_rate.returncode, malformed.returncode) == (2, 2)
    assert "'shop-de=200' is not NAME=RATE/LATENCY" in malformed.stderr
