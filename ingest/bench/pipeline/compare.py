"""Compares contenders, or the values of a sweep, and reports the medians."""

from collections.abc import Sequence
from dataclasses import asdict

from ingest.bench.pipeline.go_build import built_program
from ingest.bench.pipeline.limits import limit_notes
from ingest.bench.pipeline.plan import GO, GO_JSON, SERVICE, Plan
from ingest.bench.pipeline.session import Case, session
from ingest.bench.pipeline.sweep import Sweep, sweep_chart, sweep_notes, sweep_table
from ingest.bench.pipeline.tables import comparison_chart, notes, tables
from ingest.bench.report import Findings
from ingest.bench.stage import Servers


def compare(plan: Plan, rivals: Sequence[str], *, runs: int, servers: Servers) -> Findings:
    """Run the service and its rivals in turn, and report the medians.

    Args:
        plan: the plan for all contenders.
        rivals: names of the other contenders.
        runs: number of runs of each contender.
        servers: the servers to use.
    """
    if {GO, GO_JSON} & {*rivals}:
        built_program()  # before servers are started and times are measured
    with session(servers) as on:
        done, rows = on.run([Case(name, plan) for name in (SERVICE, *rivals)], runs)
    queued = rows[0]["redis_bytes_per_queued_order"]
    return Findings(
        name="pipeline",
        settings={**asdict(plan), "runs": runs, "redis_bytes_per_queued_order": queued},
        tables=tables(plan, rows),
        charts=[comparison_chart(plan, rows)],
        notes=[*notes(plan, done, queued), *limit_notes(rows)],
        runs=done,
    )


def run_sweep(plan: Plan, sweep: Sweep, *, runs: int, servers: Servers) -> Findings:
    """Run the service at each value, and report a row for each with the medians of `runs` runs."""
    cases = [Case(SERVICE, at_value, value) for value, at_value in zip(sweep.values, sweep.plans, strict=True)]
    with session(servers) as on:
        done, rows = on.run(cases, runs)
    knee = sweep.knee([row["orders_per_s"] or 0.0 for row in rows])
    return Findings(
        name="pipeline-sweep",
        settings={**asdict(plan), "runs": runs, "sweep": sweep.option, "values": list(sweep.values), "knee": knee},
        tables=[sweep_table(sweep, plan, rows)],
        charts=[sweep_chart(sweep, plan, rows, knee)],
        notes=[*sweep_notes(sweep, plan, done, knee), *limit_notes(rows)],
        runs=done,
    )
