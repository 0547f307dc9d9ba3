"""`ingest bench mapping` does the same work in each compared way. Speed is not asserted."""

import json
import os

import msgspec
from support import Cli

from ingest.bench.mapping import DOCUMENT, EXPRESSIONS, ORDER_ID, measure, ways
from ingest.domain.orders.order import Order


def test_each_way_finds_the_same_values() -> None:
    compared = {name: way() for name, way in ways().items()}

    mapped, found = compared["mapping"], compared["JMESPath alone"]
    assert isinstance(mapped, Order)
    assert isinstance(found, list)
    assert compared["JSON alone"] == msgspec.json.decode(DOCUMENT)
    assert len(EXPRESSIONS) == 20
    assert None not in found
    assert (found[0], mapped.id, found[1]) == (int(ORDER_ID), ORDER_ID, mapped.status)
    assert [found[7], found[11]] == [line.sku for line in mapped.lines]
    assert found[19] == mapped.attributes["tags"]


def test_each_way_has_a_time_for_each_turn() -> None:
    calls: list[str] = []

    times = measure({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, 3)

    assert {name: len(measured) for name, measured in times.items()} == {"a": 3, "b": 3}
    assert calls == ["a"] * 50 + ["b"] * 50 + ["a"] * 50 + ["b"] * 50 + ["a"] * 50 + ["b"] * 50


def test_the_command_prints_the_report() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("INGEST_", "COLUMNS"))}

    done = Cli(environment).run("bench", "mapping", "--turns", "2", "--json")

    report = json.loads(done.stdout)
    assert [row["way"] for row in report["tables"][0]["rows"]] == [*ways()]


def test_a_directory_that_cannot_be_written_to_is_one_line_before_anything_is_measured() -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("INGEST_", "COLUMNS"))}

    done = Cli(environment).run("bench", "mapping", "--turns", "2", "--output", "/dev/null/results")

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "ingest: cannot write to /dev/null/results: Not a directory\n"
