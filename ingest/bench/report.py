"""Reports what a bench has measured: printed as Markdown, written as JSON, with a chart beside it."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ingest.bench.machine import Machine

Cell = str | int | float | None


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        key: the name of the value in JSON, with its unit: `cpu_us_per_order`.
        title: for people.
        digits: after the decimal point.
    """

    key: str
    title: str
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values by column key; a missing or None value was not measured."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[dict[str, Cell]]

    def markdown(self) -> str:
        """The table as Markdown, numbers to the right."""
        titles = [column.title for column in self.columns]
        texts = [[_text(row.get(column.key), column.digits) for column in self.columns] for row in self.rows]
        widths = [max(map(len, column)) for column in zip(titles, *texts, strict=True)]
        is_number = [any(isinstance(row.get(column.key), (int, float)) for row in self.rows) for column in self.columns]
        rules = ["-" * (width - 1) + (":" if right else "-") for width, right in zip(widths, is_number, strict=True)]
        padded = [
            [
                text.rjust(width) if right else text.ljust(width)
                for text, width, right in zip(row, widths, is_number, strict=True)
            ]
            for row in [titles, *texts]
        ]
        lines = [_line(padded[0]), _line(rules), *map(_line, padded[1:])]
        return "\n".join([f"### {self.title}", "", *lines] if self.title else lines)


@dataclass(frozen=True, slots=True)
class Report:
    """What one bench reports.

    Attributes:
        name: the bench, and the name of its files.
        command: as it was typed.
        settings: by option name.
        notes: what a reader has to know, a sentence each.
        runs: the single runs behind the tables' medians, if there are any.
    """

    name: str
    command: str
    machine: Machine
    settings: dict[str, Any]
    tables: Sequence[Table]
    notes: Sequence[str] = ()
    runs: Sequence[dict[str, Any]] = field(default_factory=list)

    def markdown(self) -> str:
        """Tables, notes, command and machine."""
        parts = [table.markdown() for table in self.tables]
        if self.notes:
            parts.append("\n".join(f"- {note}" for note in self.notes))
        parts.append(f"`{self.command}` on {self.machine.sentence()}")
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, Any]:
        """All of it, for scripts."""
        return {
            "bench": self.name,
            "command": self.command,
            "machine": self.machine.as_dict(),
            "settings": self.settings,
            "tables": [{"title": table.title, "rows": list(table.rows)} for table in self.tables],
            "notes": list(self.notes),
            "runs": list(self.runs),
        }

    def json(self) -> str:
        """`as_dict` as indented JSON."""
        return json.dumps(self.as_dict(), indent=2, default=str)


@dataclass(frozen=True, slots=True)
class Result:
    """A report, and how to draw its charts into files whose names begin with a path."""

    report: Report
    draw: Callable[[Path], None]

    def write(self, directory: Path) -> None:
        """Write `NAME.md`, `NAME.json` and the charts into a directory, which is made if it is missing."""
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / self.report.name
        path.with_suffix(".md").write_text(f"{self.report.markdown()}\n")
        path.with_suffix(".json").write_text(f"{self.report.json()}\n")
        self.draw(path)


def _text(value: Cell, digits: int) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
