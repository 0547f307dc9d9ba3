"""The program and its tests grow only with a reason.

`growth.txt` is a table of the lines in each folder, of folders with more than 20 files, and of classes of the program with more than 13
methods. A number may fall freely. To let one grow, write the table again, and add a line to `CHANGELOG.md` about what users get for it:

    .venv/bin/python tests/unit/test_growth.py >tests/unit/growth.txt
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = Path(__file__).with_name("growth.txt")
METHODS, FILES = 13, 20
BINARY = {".gz"}


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
        if name.suffix == ".py" and name.parts[0] == "ingest":
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    own = sum(isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef) for each in node.body)
                    methods[f"methods {name}:{node.name}"] = own
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


if __name__ == "__main__":
    print(*(f"{key} {count}" for key, count in sizes().items()), sep="\n")  # noqa: T201  its purpose
