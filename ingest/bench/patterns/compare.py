"""Runs each pattern undisturbed, then again with one of its processes killed half-way, and reports both."""

from dataclasses import asdict
from functools import partial
from pathlib import Path

from ingest.bench.machine import Machine
from ingest.bench.patterns.notes import notes_of
from ingest.bench.patterns.plan import PROFILES, Pattern, Plan
from ingest.bench.patterns.progress import shown
from ingest.bench.patterns.run import Killed, Measured, Runs
from ingest.bench.report import Cell, Column, Report, Result, Table
from ingest.bench.stage import stage
from ingest.bench.trial import announce, run_trials
from ingest.lab.session import order_ids
from ingest.lab.upstream.samples import sample_orders

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
    Column("pending", "Pending indefinitely"),
    Column("requests", "Requests"),
    Column("why", "Why"),
)


def compare(plan: Plan, command: str) -> Result:
    """Run the plan; `command` is as it was typed.

    Raises:
        LabFailed: a part of it did not start, or did not end.
    """
    machine = Machine.here()
    runs = len(plan.patterns) * (2 if plan.kill else 1)
    announce(f"{runs} runs of {plan.orders:,} orders", plan.expected_in_all())
    with stage() as on:
        on.migrate()
        trials = Runs(on, on.api(*plan.api_options), order_ids(plan.orders, sample_orders(), "BENCH"))

        def measure(pattern: Pattern) -> Measured:
            with shown(f"{_title(pattern)}: about {plan.expected(pattern):.0f} s", plan.orders) as show:
                return trials.measure(pattern, show)

        def kill(pattern: Pattern) -> Killed:
            title = f"{_title(pattern)}, one process killed half-way: about {plan.expected_killed(pattern):.0f} s"
            with shown(title, plan.orders) as show:
                return trials.kill(pattern, show)

        measured = run_trials(plan.patterns, measure, lambda _, run: f"{run.pattern}: {run.stored:,} stored")
        killed = run_trials(
            plan.patterns if plan.kill else (), kill, lambda _, run: f"{run.pattern}, killed: {run.lost:,} lost"
        )
    return Result(_report(plan, machine, measured, killed, command), partial(_draw, plan, measured, killed))


def _report(plan: Plan, machine: Machine, measured: list[Measured], killed: list[Killed], command: str) -> Report:
    tables = [Table("Undisturbed", _MEASURED, [_measured_row(plan, run) for run in measured])]
    if killed:
        tables.append(Table("One process killed half-way", _KILLED, [_killed_row(run) for run in killed]))
    return Report(
        name="patterns",
        command=command,
        machine=machine,
        settings=asdict(plan),
        tables=tables,
        notes=notes_of(plan),
        runs=[*map(asdict, measured), *map(asdict, killed)],
    )


def _draw(plan: Plan, measured: list[Measured], killed: list[Killed], path: Path) -> None:
    from ingest.bench.patterns.picture import draw  # noqa: PLC0415  Matplotlib takes half a second

    draw(plan, measured, killed, path)


def _measured_row(plan: Plan, run: Measured) -> dict[str, Cell]:
    profile = PROFILES[run.pattern]
    row: dict[str, Cell] = {
        "name": run.pattern.value,
        "pattern": profile.title,
        "seconds": run.seconds,
        "waiting_seconds": plan.ideal(run.pattern),
        "memory_mb": run.memory / MB,
        "stored": run.stored,
        "errors_percent": 100 * (plan.orders - run.stored) / plan.orders,
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


def _title(pattern: Pattern) -> str:
    return PROFILES[pattern].title
