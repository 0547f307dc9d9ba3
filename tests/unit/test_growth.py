"""The program and its tests grow only with a reason, and modules, classes and ports stay small enough to be read in one sitting.

`growth.txt` is a table of the lines in each folder, of folders with more than 20 files, and of classes of the program with more than 13
methods. A number may fall freely. To let one grow, write the table again, and add a line to `CHANGELOG.md` about what users get for it:

    .venv/bin/python tests/unit/test_growth.py >tests/unit/growth.txt
"""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("growth.txt")
METHODS, FILES = 13, 20
BINARY = {".gz", ".xz"}

# Programs beside the service.
OTHERS = ("bench", "demo", "lab")
LINES, PUBLIC_METHODS, PORT_METHODS = 250, 12, 5
# Modules that are still longer.
LONG = {
    "cli/__init__.py",
    "store/connections/connection.py",
    "store/outbox/outbox.py",
}


def files() -> Iterator[Path]:
    """The files of the program and of its tests, relative to the root."""
    for top in ("ingest", "tests"):
        for path in sorted((ROOT / top).rglob("*")):
            name = path.relative_to(ROOT)
            if (
                path.is_file()
                and path != TABLE
                and not any(part.startswith((".", "__pycache__")) for part in name.parts)
            ):
                yield name


@cache
def tops() -> dict[Path, list[ast.stmt]]:
    """The statements of each module of the program."""
    return {
        name: ast.parse((ROOT / name).read_bytes()).body
        for name in files()
        if name.parts[0] == "ingest" and name.suffix == ".py"
    }


def classes_in(body: Iterable[ast.stmt]) -> Iterator[ast.ClassDef]:
    """The classes of a module, with those in classes and functions."""
    for node in body:
        if isinstance(node, ast.ClassDef):
            yield node
        yield from classes_in(getattr(node, "body", ()))


def methods_of(node: ast.ClassDef) -> list[str]:
    return [each.name for each in node.body if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)]


def sizes() -> dict[str, int]:
    """The current table."""
    lines, counts, methods = Counter[str](), Counter[str](), Counter[str]()
    for name in files():
        counts[f"files {name.parent}"] += 1
        if name.suffix in BINARY:
            continue
        text = (ROOT / name).read_bytes()
        # Two levels. A folder of the first level stands for the files directly in it.
        lines[f"lines {'/'.join(name.parent.parts[:3])}"] += text.count(b"\n")
    for name, body in tops().items():
        methods |= {f"methods {name}:{node.name}": len(methods_of(node)) for node in classes_in(body)}
    large = {key: count for key, count in methods.items() if count > METHODS}
    full = {key: count for key, count in counts.items() if count > FILES}
    return dict(sorted((lines | large | full).items()))


def test_a_number_grows_only_with_the_table() -> None:
    table = dict(line.rsplit(" ", 1) for line in TABLE.read_text(encoding="utf-8").splitlines())

    grown = {key: (count, table.get(key)) for key, count in sizes().items() if count > int(table.get(key, 0))}

    assert grown == {}


def test_test_modules_have_unique_names() -> None:
    names = Counter(name.name for name in files() if name.name.startswith("test_"))

    assert [name for name, count in names.items() if count > 1] == []


def of_the_service() -> Iterator[tuple[str, list[ast.stmt]]]:
    for path, body in tops().items():
        name = path.relative_to("ingest").as_posix()
        if not name.startswith(OTHERS):
            yield name, body


def public_classes() -> Iterator[tuple[str, ast.ClassDef, int]]:
    """The public classes, each with its number of public methods."""
    for name, body in of_the_service():
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield f"{name}:{node.name}", node, sum(not each.startswith("_") for each in methods_of(node))


def test_modules_have_up_to_250_lines() -> None:
    assert {name for name, _ in of_the_service() if (ROOT / "ingest" / name).read_bytes().count(b"\n") > LINES} == LONG


def test_public_classes_have_up_to_12_public_methods() -> None:
    assert [name for name, _, count in public_classes() if count > PUBLIC_METHODS] == []


def test_ports_have_up_to_5_methods() -> None:
    ports = [
        (name, count)
        for name, node, count in public_classes()
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases)
    ]

    assert [name for name, count in ports if count > PORT_METHODS] == []


if __name__ == "__main__":
    print(*(f"{key} {count}" for key, count in sizes().items()), sep="\n")  # noqa: T201  its purpose
