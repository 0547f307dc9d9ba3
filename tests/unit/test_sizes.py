"""Modules, classes and ports stay small enough to be read at one sitting."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

INGEST = Path(__file__).parents[2] / "ingest"
# Programs beside the service.
OTHERS = ("bench", "demo", "lab")
LINES, METHODS, PORT_METHODS = 250, 12, 5
# Modules that are still longer.
LONG = {
    "cli/__init__.py",
    "store/connections/connection.py",
    "store/outbox/outbox.py",
}
# A protocol that combines ports or describes a connection.
LARGE_PORTS: set[str] = set()


def modules() -> Iterator[tuple[str, str]]:
    for path in sorted(INGEST.rglob("*.py")):
        name = path.relative_to(INGEST).as_posix()
        if not name.startswith(OTHERS):
            yield name, path.read_text(encoding="utf-8")


@cache
def classes() -> list[tuple[str, ast.ClassDef, int]]:
    """The public classes, each with its number of public methods."""
    found = []
    for name, text in modules():
        for node in ast.parse(text).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                methods = [each for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]
                found.append((f"{name}:{node.name}", node, sum(not each.name.startswith("_") for each in methods)))
    return found


def is_port(node: ast.ClassDef) -> bool:
    return any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)


def test_modules_have_up_to_250_lines() -> None:
    assert {name for name, text in modules() if text.count("\n") > LINES} == LONG


def test_public_classes_have_up_to_12_public_methods() -> None:
    assert [name for name, _, methods in classes() if methods > METHODS] == []


def test_ports_have_up_to_5_methods() -> None:
    assert {name for name, node, methods in classes() if is_port(node) and methods > PORT_METHODS} == LARGE_PORTS
