"""What the bench has found, as a report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from ingest.bench.patterns.notes import notes_of
from ingest.bench.patterns.plan import PROFILES
from ingest.bench.report import Column, Report, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ingest.bench.machine import Machine
    from ingest.bench.patterns.plan import Plan
    from ingest.bench.patterns.trial import Killed, Measured
    from ingest.bench.report import Cell

MB = 1_000_000

_MEASURED = (
    Column("pattern", "Pattern"),
    Column("seconds", "Time, s", 1),
    Column("waiting_seconds", "at least", 1),
    Column("published_seconds", "published, for 10,000", 1),
    Column("memory_mb", "Peak memory, MB"),
    Column("published_memory_mb", "published, for 10,000"),
    Column("errors_percent", "Errors, %", 2),
    Column("published_errors_percent", "published", 2),
    Column("cpu_percent", "CPU, % of a core"),
    Column("peak_concurrency", "Most requests at once"),
    Column("requests", "Requests"),
)
_KILLED = (
    Column("pattern", "Pattern"),
    Column("killed", "Killed when half was stored"),
    Column("stored_before", "Stored by then"),
    Column("stored", "Stored in the end"),
    Column("seconds_after", "Last row after, s", 1),
    Column("lost", "Lost"),
    Column("pending", "Pending for ever"),
    Column("requests", "Requests"),
    Column("why", "Why"),
)


@dataclass(frozen=True, slots=True)
class Result:
    """All runs."""

    plan: Plan
    machine: Machine
    measured: Sequence[Measured]
    killed: Sequence[Killed]

    def report(self, command: str) -> Report:
        """Tables and notes; `command` is what was typed."""
        plan = self.plan
        tables = [Table("Undisturbed", _MEASURED, [self._row(run) for run in self.measured])]
        if self.killed:
            tables.append(Table("One process killed half-way", _KILLED, [_killed_row(run) for run in self.killed]))
        return Report(
            name="patterns",
            command=command,
            machine=self.machine,
            settings=asdict(plan),
            tables=tables,
            notes=notes_of(plan),
            runs=[*map(asdict, self.measured), *map(asdict, self.killed)],
        )

    def _row(self, run: Measured) -> dict[str, Cell]:
        profile = PROFILES[run.pattern]
        row: dict[str, Cell] = {
            "name": run.pattern.value,
            "pattern": profile.title,
            "seconds": run.seconds,
            "waiting_seconds": self.plan.ideal(run.pattern),
            "memory_mb": run.memory / MB,
            "stored": run.stored,
            "errors_percent": 100 * (self.plan.orders - run.stored) / self.plan.orders,
            "cpu_percent": 100 * run.cpu_seconds / run.seconds if run.seconds else None,
            "peak_concurrency": run.peak_concurrency,
            "requests": run.requests,
            "refused": run.refused,
        }
        if profile.published is not None:
            row |= {f"published_{key}": value for key, value in asdict(profile.published).items()}
        return row


def _killed_row(run: Killed) -> dict[str, Cell]:
    profile = PROFILES[run.pattern]
    return {
        "name": run.pattern.value,
        "pattern": profile.title,
        "killed": run.process or "nothing: it was done before",
        "stored_before": run.stored_before,
        "stored": run.stored,
        "seconds_after": run.seconds_after if profile.survives else None,
        "waiting": run.waiting,
        "lost": run.lost,
        "pending": run.pending,
        "requests": run.requests,
        "why": profile.why if run.process else "",
    }
