"""Runs the commands of docs/explanation/load-tests.md again, and compares their tables with those on the page.

`python -m rehearsals.evidence` exits with 1 if a figure differs by more than `--within`, and lists these figures. With
`--write`, the new tables replace those on the page.
"""

import argparse
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/explanation/load-tests.md"
# Differences of one in the last digit of small figures are rounding.
_SMALL = 2.0

_SECTION = re.compile(
    r"^## (?P<title>[^\n]+)\n.*?```sh\ningest bench (?P<command>[^`]+?)\n```\n\n<!-- measured -->\n(?P<text>.*?)<!-- end -->\n",
    re.MULTILINE | re.DOTALL,
)
_NUMBER = re.compile(r"^-?[\d,]+(\.\d+)?$")


@dataclass(frozen=True, slots=True)
class Section:
    """A command on the page, and the text that it printed."""

    title: str
    command: str
    text: str

    def replaced(self, page: str, measured: str) -> str:
        """The page with other tables in this section."""
        begin = f"ingest bench {self.command}\n```\n\n<!-- measured -->\n"
        return page.replace(f"{begin}{self.text}<!-- end -->", f"{begin}{measured}<!-- end -->")

    def run(self) -> str:
        """Run the command, and return its tables with the date and the machine."""
        with tempfile.TemporaryDirectory() as folder:
            command = [f"{sys.prefix}/bin/ingest", "bench", *shlex.split(self.command.replace("\\\n", " "))]
            subprocess.run([*command, "--output", folder], check=True, stdout=subprocess.DEVNULL)
            (report,) = Path(folder).glob("*.md")
            parts = report.read_text().rstrip().split("\n\n")
        tables = "\n\n".join(part for part in parts if part.startswith(("#", "|")))
        machine = parts[-1].rpartition("` on ")[2]
        return f"\n{tables}\n\n{datetime.now(UTC):%-d %B %Y}, {machine}\n\n"


def sections(page: str) -> list[Section]:
    """The measured sections of the page."""
    return [Section(**found.groupdict()) for found in _SECTION.finditer(page)]


def differences(published: str, measured: str, within: float) -> Iterator[str]:
    """The figures that differ by more than the share `within` of the published figure."""
    before, after = list(_cells(published)), list(_cells(measured))
    if [place for place, _ in before] != [place for place, _ in after]:
        yield "the tables have other rows or columns"
        return
    for (place, old), (_, new) in zip(before, after, strict=True):
        if not _is_near(old, new, within):
            yield f"{place}: {old} on the page, {new} now"


def _cells(text: str) -> Iterator[tuple[str, str]]:
    """The cells of all tables with the names of their row and column. A row's name is its cells of text."""
    heading: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("|"):
            heading = []
        elif not heading:
            heading = cells
        elif not set(line) <= set("|-: "):
            row = ", ".join(cell for cell in cells if not _NUMBER.match(cell))
            yield from ((f"{row}: {name}", cell) for name, cell in zip(heading, cells, strict=True))


def _is_near(old: str, new: str, within: float) -> bool:
    if not (_NUMBER.match(old) and _NUMBER.match(new)):
        return old == new
    one, other = (float(cell.replace(",", "")) for cell in (old, new))
    last_digit = 10.0 ** -len(old.partition(".")[2])
    return abs(one - other) <= max(within * abs(one), _SMALL * last_digit)


def _write(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    """Run the sections, and report."""
    parser = argparse.ArgumentParser(prog="make evidence", description=__doc__)
    parser.add_argument("--only", help="run the sections whose titles contain this text")
    parser.add_argument("--within", type=float, default=0.3, help="share by which a figure may differ (%(default)s)")
    parser.add_argument("--write", action="store_true", help="replace the tables on the page")
    options = parser.parse_args()
    page, differ = PAGE.read_text(), 0
    for section in sections(page):
        if options.only and options.only.lower() not in section.title.lower():
            continue
        _write(f"{section.title}: ingest bench {section.command}")
        measured = section.run()
        found = list(differences(section.text, measured, options.within))
        differ += bool(found)
        for line in found or ["reproduced"]:
            _write(f"  {line}")
        if options.write:
            page = section.replaced(page, measured)
            PAGE.write_text(page)
    _write(f"{differ} sections differ" if differ else "all sections are reproduced")
    return int(bool(differ) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
