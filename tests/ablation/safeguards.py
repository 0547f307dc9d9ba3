"""The safeguards on which the guarantees rest, in a TOML file for each area beside this module.

    ["ingest/queue/lua/ack.lua".ack-only-held-entries]
    protects = "A consumer finishes only entries that it still holds."
    before = "pending and not is_released(pending)"
    after = "pending ~= nil"
    tests = ["tests/contract/ports/test_settling_port.py::test_a_name"]

`before` occurs once in the file, and is short, so that other changes of the file leave it alone. Each of `tests` is a pytest node ID, and at
least one of them has to fail. It names one kind of server where a test runs on several. `also` lists further replacements, each with
`before`, `after`, and `file` if it is another one.
"""

from datetime import date
from pathlib import Path

import msgspec

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).parent
# A part of the safeguards is tried each day.
PARTS = 10


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A text of a file, and the text that replaces it."""

    before: str
    after: str
    file: str = ""


class Safeguard(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Code whose removal breaks a promise.

    Attributes:
        protects: the promise, in one sentence.
        tests: node IDs of tests, of which at least one fails without the safeguard.
        name: unique.
        file: contains the safeguard.
        area: the name of the TOML file, without its ending.
    """

    protects: str
    before: str
    after: str
    tests: tuple[str, ...]
    also: tuple[Replacement, ...] = ()
    name: str = ""
    file: str = ""
    area: str = ""

    def replacements(self) -> list[Replacement]:
        """All of them, each with its file."""
        others = [msgspec.structs.replace(each, file=each.file or self.file) for each in self.also]
        return [Replacement(self.before, self.after, self.file), *others]

    def without(self, root: Path = ROOT) -> dict[str, str]:
        """The changed files and their texts.

        Raises:
            ValueError: if a replacement does not apply exactly once.
        """
        texts: dict[str, str] = {}
        for each in self.replacements():
            path = root / each.file
            text = texts.get(each.file) or (path.read_text(encoding="utf-8") if path.is_file() else "")
            if text.count(each.before) != 1:
                raise ValueError(f"{each.file} contains {text.count(each.before)} times: {each.before}")
            texts[each.file] = text.replace(each.before, each.after)
        return texts


def safeguards() -> list[Safeguard]:
    """All safeguards, by area and in the order of its file."""
    return [
        msgspec.structs.replace(each, name=name, file=file, area=path.stem)
        for path in sorted(FOLDER.glob("*.toml"))
        for file, tables in msgspec.toml.decode(path.read_bytes(), type=dict[str, dict[str, Safeguard]]).items()
        for name, each in tables.items()
    ]


def part_of(day: date) -> int:
    """Which part is tried on a day."""
    return day.toordinal() % PARTS


_TITLES = {"api": "HTTP API and console"}


def page() -> str:
    """The page of the documentation about all safeguards."""
    areas: dict[str, list[Safeguard]] = {}
    for each in safeguards():
        areas.setdefault(each.area, []).append(each)
    lines = [
        "# Safeguards",
        "",
        f"The [guarantees](guarantees.md) depend on the {sum(map(len, areas.values()))} safeguards on this page. `make ablation`",
        "removes each of them in a copy of the source, and runs its tests. It fails if the tests pass without the",
        "safeguard. `make test` tries a tenth of the safeguards, and the date decides which. To try a single",
        'one, run `make ablation ARGS="--only NAME"`.',
    ]
    for area, members in areas.items():
        lines += [
            "",
            f"## {_TITLES.get(area, area.capitalize())}",
            "",
            "| safeguard | promise | file |",
            "|---|---|---|",
        ]
        lines += [f"| `{each.name}` | {each.protects} | `{each.file}` |" for each in members]
    return "\n".join([*lines, ""])
