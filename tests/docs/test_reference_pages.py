"""The reference pages are complete, and the generated ones are those that `make reference` writes."""

import ast
import re
from pathlib import Path

import pytest
import yaml

from docs.reference import REFERENCE, generated
from ingest.domain.deliveries import entry_fields
from ingest.operations.declared import STATUS_OF
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.controls import controls_key
from ingest.queue.partitions.layout_record import layout_key

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("file", "text"), [*generated()], ids=lambda value: str(value.name) if isinstance(value, Path) else ""
)
def test_a_generated_page_is_the_one_that_make_reference_writes(file: Path, text: str) -> None:
    assert file.read_text("utf-8") == text


@pytest.mark.parametrize("folder", ["cli", "http-api"])
def test_every_folder_of_generated_pages_contains_no_other_page(folder: str) -> None:
    assert {*(REFERENCE / folder).iterdir()} == {file for file, _ in generated() if file.parent.name == folder}


def test_the_page_of_errors_has_every_code_of_the_http_api() -> None:
    page = (REFERENCE / "problems.md").read_text("utf-8")

    listed = set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE))

    assert listed == codes() | STATUS_OF.keys()


def codes() -> set[str]:
    """The codes of all problems of the HTTP API. The console shows its own as pages."""
    files = [file for file in (ROOT / "ingest" / "api").rglob("*.py") if "console" not in file.relative_to(ROOT).parts]
    calls = [
        node
        for file in files
        for node in ast.walk(ast.parse(file.read_text("utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in {"Problem", "Refused", "busy", "_Form"}
    ]
    return {
        call.args[1].value
        for call in calls
        if len(call.args) > 1 and isinstance(call.args[1], ast.Constant) and isinstance(call.args[1].value, str)
    }


def test_the_page_of_alerts_has_each_alert_with_its_severity_and_time() -> None:
    page = (REFERENCE / "alerts.md").read_text("utf-8")
    rules = yaml.safe_load((ROOT / "deploy/prometheus/rules/alerts.yml").read_text("utf-8"))

    expected = {
        (rule["alert"], rule["labels"]["severity"], rule.get("for", ""))
        for group in rules["groups"]
        for rule in group["rules"]
    }

    assert {*re.findall(r"^\| \[(\w+)\]\(\S+\) \| (\w+) \| (\w*) ?\|", page, re.MULTILINE)} == expected


def test_the_page_of_redis_keys_has_each_key_and_each_field() -> None:
    page = (REFERENCE / "redis-keys.md").read_text("utf-8")
    keys = Keys.of("q", "GROUP")
    names = {re.sub(r"^ingest:\{q\}:|(:GROUP)?:?$", "", getattr(keys, name)) for name in Keys.__struct_fields__}
    names |= {key("q").rpartition(":")[2] for key in (controls_key, layout_key)}
    fields = {field.decode() for field in entry_fields.KNOWN | {entry_fields.PACKED}} - {"source"}

    shown = {name.partition(":")[0] for name in re.findall(r"`([^`]+)`", page)}

    assert names | fields <= shown
