"""Reports the results of a bench as Markdown, JSON and charts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ingest.bench.machine import Machine
from ingest.bench.panels import Chart

Cell = str | int | float | None
Row = dict[str, Any]
"""Cells by column key, and further values for JSON."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        key: name of the value in JSON with its unit, such as `cpu_us_per_order`.
        title: heading.
        digits: decimals.
    """

    key: str
    title: str
    digits: int = 0


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of values by column key. A missing or None value was not measured."""

    title: str
    columns: Sequence[Column]
    rows: Sequence[Row]

    def markdown(self) -> str:
        """The table as Markdown, with numbers aligned to the right."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """The results of one bench.

    Attributes:
        name: name of the bench and of its files.
        settings: settings by option name.
        notes: sentences that explain the tables.
        runs: the single runs behind the tables.
    """

    name: str
    settings: Mapping[str, Any]
    tables: Sequence[Table]
    charts: Sequence[Chart]
    notes: Sequence[str]
    runs: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Report:
    """The results of a bench, with its command line and the machine before the bench."""

    findings: Findings
    command: str
    machine: Machine

    def markdown(self) -> str:
        """Tables, notes, command and machine as Markdown."""
        parts = [table.markdown() for table in self.findings.tables]
        parts.append("\n".join(f"- {note}" for note in self.findings.notes))
        parts.append(f"`{self.command}` on {self.machine.sentence()}")
        return "\n\n".join(parts)

    def json(self) -> str:
        """The whole report as indented JSON."""
        findings = self.findings
        all_of_it = {
            "bench": findings.name,
            "command": self.command,
            "machine": asdict(self.machine),
            "settings": findings.settings,
            "tables": [{"title": table.title, "rows": list(table.rows)} for table in findings.tables],
            "notes": findings.notes,
            "runs": findings.runs,
        }
        return json.dumps(all_of_it, indent=2, default=str)

    def write(self, directory: Path) -> None:
        """Write `NAME.md`, `NAME.json` and the charts to a directory, and create it if it does not exist."""
        from ingest.bench.chart import draw  # noqa: PLC0415  Matplotlib takes half a second

        directory.mkdir(parents=True, exist_ok=True)
        path = directory / self.findings.name
        path.with_suffix(".md").write_text(f"{self.markdown()}\n")
        path.with_suffix(".json").write_text(f"{self.json()}\n")
        for chart in self.findings.charts:
            draw(chart, path)


def _text(value: Cell, digits: int) -> str:
    if value is None:
        return "-"
    return value if isinstance(value, str) else f"{value:,.{digits}f}"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
