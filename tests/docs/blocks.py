"""The code blocks of README and docs, and how each is tested: `python -m docs.blocks` lists them all.

A comment on the line before a block declares it:

| comment | meaning |
|---|---|
| `<!-- run: servers -->` | executed in that scenario (`docs.scenarios`), after the earlier blocks of the page in the same scenario |
| `<!-- run: servers, as sources.toml -->` | saved in the scenario's folder under this name |
| `<!-- run: servers, exit 1 -->` | executed, and its last command ends with this exit code |
| `<!-- run: servers, in background -->` | started. The next block runs after its first line of output |
| `<!-- run by: tests/acceptance/test_capacity_command.py -->` | executed or checked by that test, which reads the page |
| `<!-- not run: needs a Kubernetes cluster -->` | not executed, for this reason |
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md") if (ROOT / name).exists()),
    *sorted((ROOT / "docs").rglob("*.md")),
]

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+|~~~+)(?P<language>[\w-]*) *$")
_MARK = re.compile(r"^ *<!-- (?P<kind>run|run by|not run): (?P<value>.+?) -->$")
_RUN = re.compile(
    r"(?P<scenario>[\w-]+)(?:, as (?P<file>[\w./-]+))?(?:, exit (?P<code>\d+))?(?P<background>, in background)?"
)


@dataclass(frozen=True, slots=True)
class Run:
    """A block that is executed in a scenario.

    Attributes:
        scenario: its name.
        file: the name under which it is saved instead.
        code: exit code of its last command.
        background: whether the next block runs while this one does.
    """

    scenario: str
    file: str | None = None
    code: int = 0
    background: bool = False


@dataclass(frozen=True, slots=True)
class RunBy:
    """A block that an existing test takes from the page."""

    test: str


@dataclass(frozen=True, slots=True)
class NotRun:
    """A block that is not executed, with the reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Block:
    """One code block.

    Attributes:
        page: path in the repository.
        line: where its fence is.
        language: as its fence declares it.
        text: its lines, without the indentation of the fence.
        mark: how it is tested, or None without a comment.
    """

    page: str
    line: int
    language: str
    text: str
    mark: Run | RunBy | NotRun | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def mark_in(line: str) -> Run | RunBy | NotRun | None:
    """The declaration in the line before a block.

    Raises:
        ValueError: it begins like one, but is none.
    """
    found = _MARK.match(line)
    if found is None:
        if re.match(r" *<!-- *(not )?run", line):
            raise ValueError(line)
        return None
    if found["kind"] == "run by":
        return RunBy(found["value"])
    if found["kind"] == "not run":
        return NotRun(found["value"])
    run = _RUN.fullmatch(found["value"])
    if run is None:
        raise ValueError(line)
    return Run(run["scenario"], run["file"], int(run["code"] or 0), bool(run["background"]))


def blocks_of(page: Path) -> Iterator[Block]:
    """The blocks of a page in their order."""
    lines = page.read_text("utf-8").splitlines()
    name = page.relative_to(ROOT).as_posix()
    number = 0
    while number < len(lines):
        opened = _FENCE.match(lines[number])
        if opened is None:
            number += 1
            continue
        end = number + 1
        while lines[end].strip() != opened["fence"]:
            end += 1
        text = "".join(line.removeprefix(opened["indent"]) + "\n" for line in lines[number + 1 : end])
        try:
            mark = mark_in(lines[number - 1])
        except ValueError as error:
            raise ValueError(f"{name}:{number}: {error}") from None
        yield Block(name, number + 1, opened["language"], text, mark)
        number = end + 1


def all_blocks() -> list[Block]:
    return [block for page in PAGES for block in blocks_of(page)]


def described(block: Block) -> str:
    """The line of a block in the list."""
    match block.mark:
        case Run(scenario, file, code, background):
            how = f"run in {scenario}" + (f" as {file}" if file else "") + (f", exit {code}" if code else "")
            how += ", in background" if background else ""
        case RunBy(test):
            how = f"run by {test}"
        case NotRun(reason):
            how = f"not run: {reason}"
        case None:
            how = "NOT DECLARED"
    return f"{block!s:<48} {block.language or '-':<8} {how}"


def main() -> None:
    blocks = all_blocks()
    counts = {
        kind.__name__: sum(isinstance(block.mark, kind) for block in blocks)
        for kind in (Run, RunBy, NotRun, type(None))
    }
    summary = "{Run} run, {RunBy} run by other tests, {NotRun} not run, {NoneType} not declared".format(**counts)
    sys.stdout.write("".join(f"{line}\n" for line in [*map(described, blocks), summary]))


if __name__ == "__main__":
    main()
