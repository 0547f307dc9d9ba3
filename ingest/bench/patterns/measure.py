"""The whole bench: each pattern undisturbed, then each again with one of its processes killed half-way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psycopg

from ingest.bench.errors import BenchFailed
from ingest.bench.machine import Machine
from ingest.bench.patterns.progress import announce, shown
from ingest.bench.patterns.result import Result
from ingest.bench.patterns.trial import Track
from ingest.bench.stage import order_ids, stage
from ingest.lab.upstream.samples import sample_orders

if TYPE_CHECKING:
    from ingest.bench.patterns.plan import Pattern, Plan
    from ingest.bench.patterns.trial import Killed, Measured

_BEYOND_EXPECTED = 120.0  # seconds
_TIMES_EXPECTED = 5.0


def measure(plan: Plan) -> Result:
    """Run the plan.

    Raises:
        BenchFailed: a part of it did not start, or did not end.
    """
    machine = Machine.here()
    announce(plan)
    try:
        measured, killed = _run(plan)
    except psycopg.Error as error:
        raise BenchFailed(f"PostgreSQL cannot be used: {error}") from error
    return Result(plan, machine, measured, killed)


def _run(plan: Plan) -> tuple[list[Measured], list[Killed]]:
    with stage() as on:
        on.migrate()
        track = Track(on, on.api(*plan.api_options), order_ids(plan.orders, sample_orders()))
        measured, killed = [], []
        for pattern in plan.patterns:
            with shown(plan, pattern, plan.expected(pattern), kill=False) as watcher:
                measured.append(track.measure(pattern, _patience(plan, pattern), watcher))
        for pattern in plan.patterns if plan.kill else ():
            with shown(plan, pattern, plan.expected_killed(pattern), kill=True) as watcher:
                killed.append(track.kill(pattern, _patience(plan, pattern), watcher))
    return measured, killed


def _patience(plan: Plan, pattern: Pattern) -> float:
    return _BEYOND_EXPECTED + _TIMES_EXPECTED * plan.expected(pattern)
