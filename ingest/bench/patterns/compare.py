"""Runs each pattern undisturbed and then with one process killed half-way, and reports both."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict

from ingest.bench.panels import OTHER, OURS, Bars, Chart, Series
from ingest.bench.patterns.notes import notes_of
from ingest.bench.patterns.plan import PROFILES, Pattern, Plan
from ingest.bench.patterns.run import Runs
from ingest.bench.report import Column, Findings, Row, Table
from ingest.bench.stage import stage
from ingest.bench.trial import Progress, announce, report_progress, run_trials
from ingest.lab.session import order_ids
from ingest.lab.upstream.samples import sample_orders

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
    Column("peak_concurrency", "Peak concurrency"),
    Column("requests", "Requests"),
)
_KILLED = (
    Column("pattern", "Pattern"),
    Column("killed", "Killed when half was stored"),
    Column("stored_before", "Stored before the kill"),
    Column("stored", "Stored at the end"),
    Column("seconds_after", "Last row after, s", 1),
    Column("lost", "Lost"),
    Column("pending", "Pending indefinitely"),
    Column("requests", "Requests"),
    Column("why", "Why"),
)
_PUBLISHED = ("published_seconds", "published_memory_mb", "published_errors_percent")


def run(plan: Plan, progress: Progress) -> Findings:
    """Run the plan.

    Raises:
        LabFailed: a part did not start, or did not end.
    """
    runs = len(plan.patterns) * (2 if plan.kill else 1)
    announce(f"{runs} runs of {plan.orders:,} orders", plan.expected_in_all())

    @contextmanager
    def shown(title: str, seconds: float) -> Iterator[Callable[[int], None]]:
        report_progress(f"{title}: about {seconds:.0f} s")
        with progress("orders stored", plan.orders) as display:
            yield display.update

    with stage() as on:
        on.migrate()
        trials = Runs(on, on.api(*plan.api_options), order_ids(plan.orders, sample_orders(), "BENCH"))

        def measure(pattern: Pattern) -> Row:
            with shown(PROFILES[pattern].title, plan.expected(pattern)) as show:
                return trials.measure(pattern, show)

        def kill(pattern: Pattern) -> Row:
            with shown(
                f"{PROFILES[pattern].title}, one process killed half-way", plan.expected_killed(pattern)
            ) as show:
                return trials.kill(pattern, show)

        measured = run_trials(plan.patterns, measure, lambda pattern, run: f"{pattern}: {run['stored']:,} stored")
        killed = run_trials(
            plan.patterns if plan.kill else (), kill, lambda pattern, run: f"{pattern}, killed: {run['lost']:,} lost"
        )
    tables = [Table("Undisturbed", _MEASURED, [_measured_row(plan, run) for run in measured])]
    if killed:
        tables.append(Table("One process killed half-way", _KILLED, [_killed_row(run) for run in killed]))
    return Findings(
        name="patterns",
        settings=asdict(plan),
        tables=tables,
        charts=[_chart(plan, tables)],
        notes=notes_of(plan),
        runs=[*measured, *killed],
    )


def _measured_row(plan: Plan, run: Row) -> Row:
    pattern, seconds = Pattern(run["pattern"]), run["seconds"]
    profile = PROFILES[pattern]
    return {
        **run,
        "name": pattern.value,
        "pattern": profile.title,
        "waiting_seconds": plan.ideal(pattern),
        "memory_mb": run["memory"] / 1e6,
        "errors_percent": 100 * (plan.orders - run["stored"]) / plan.orders,
        "cpu_percent": 100 * run["cpu_seconds"] / seconds if seconds else None,
        **dict(zip(_PUBLISHED, profile.published or (), strict=False)),
    }


def _killed_row(run: Row) -> Row:
    profile = PROFILES[Pattern(run["pattern"])]
    return {
        **run,
        "name": run["pattern"],
        "pattern": profile.title,
        "killed": run["process"] or "none, because it had finished",
        "seconds_after": run["seconds_after"] if profile.survives else None,
        "why": profile.why if run["process"] else "",
    }


def _chart(plan: Plan, tables: Sequence[Table]) -> Chart:
    """Time, memory and losses, side by side."""
    colours = [OURS if pattern is Pattern.SERVICE else OTHER for pattern in plan.patterns]
    names = [PROFILES[pattern].title for pattern in plan.patterns]

    def panel(table: Table, key: str, label: str, heading: str, digits: int = 0) -> Bars:
        return Bars(label, names, [Series("", [row[key] or 0.0 for row in table.rows], colours)], heading, digits)

    panels = [
        panel(tables[0], "seconds", "seconds to the last row", "Time", 1),
        panel(tables[0], "memory_mb", "MB at the peak, all processes", "Memory"),
        *(panel(table, "lost", "orders lost after a kill half-way", "Loss") for table in tables[1:]),
    ]
    title = f"{plan.orders:,} orders from an API with a latency of {plan.latency:g} s"
    return Chart(title, [panels], (4 + 2.6 * len(panels), 1.5 + 0.36 * len(names)))
