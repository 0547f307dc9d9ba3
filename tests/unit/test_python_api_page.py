"""docs/reference/python-api.md describes each public name with the arguments and defaults that the code has."""

import inspect
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

import ingest

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "python-api.md").read_text(encoding="utf-8")
SECTIONS = {
    heading: text.partition("\n## ")[0]
    for heading, text in re.findall(r"^##+ ([\w.]+)\n(.*?)(?=^##+ |\Z)", PAGE, re.MULTILINE | re.DOTALL)
}
_ARGUMENT = re.compile(r"^\| `(\w+)` \|([^|]*)\| ", re.MULTILINE)
# Their constructor takes the arguments of another callable, as their sections state.
_AS_ANOTHER = {"SyncProducer": "Producer.connect", "SyncClient": "Client.connect"}


def public(name: str) -> Any:
    """The object with this name, such as `Producer.enqueue`."""
    value: Any = ingest
    for part in name.split("."):
        value = getattr(value, part)
    return value


def shown(default: object) -> str:
    """The default as the page shows it. Functions and filters are described in words."""
    if default is inspect.Parameter.empty:
        return ""
    if inspect.isfunction(default):
        return "a function"
    if isinstance(default, Enum):
        return f"`{type(default).__name__}.{default.name}`"
    return f"`{default!r}`"


def arguments(function: Any) -> dict[str, str]:
    return {
        name: shown(each.default)
        for name, each in inspect.signature(function).parameters.items()
        if name not in {"self", "cls"}
    }


def methods(kind: type) -> set[str]:
    return {name for name, _ in inspect.getmembers(kind, callable) if not name.startswith("_")}


DESCRIBED = [name for name, text in SECTIONS.items() if "| argument |" in text]


def test_each_public_name_is_on_the_page() -> None:
    assert [name for name in ingest.__all__ if f"`{name}`" not in PAGE and name not in SECTIONS] == []


@pytest.mark.parametrize("name", DESCRIBED)
def test_the_arguments_of_a_section_are_those_of_the_code(name: str) -> None:
    described = {argument: default.strip() for argument, default in _ARGUMENT.findall(SECTIONS[name])}

    expected = arguments(public(name))

    assert [*described] == [*expected]
    in_words = {argument for argument, default in described.items() if default and "`" not in default}
    assert in_words <= {"filter", "on_progress", "on_wait"}
    assert [each for each in described.items() if each[0] not in in_words and each not in expected.items()] == []


@pytest.mark.parametrize("kind", ["Producer", "Client"])
def test_each_method_has_a_section(kind: str) -> None:
    assert [name for name in sorted(methods(public(kind))) if f"{kind}.{name}" not in SECTIONS] == []


@pytest.mark.parametrize(("kind", "other"), _AS_ANOTHER.items())
def test_the_classes_for_threads_take_the_arguments_of_the_others(kind: str, other: str) -> None:
    assert arguments(public(kind)) == arguments(public(other))
    assert other in SECTIONS[kind]


def test_the_attributes_of_a_found_order_are_those_of_the_code() -> None:
    assert re.findall(r"^\| `(\w+)` \|", SECTIONS["FoundOrder"], re.MULTILINE) == [
        *inspect.signature(ingest.FoundOrder).parameters
    ]
