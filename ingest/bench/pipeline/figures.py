"""Computes the figures of a run from the measurements. The name of each figure ends with its unit."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from ingest.bench.pipeline.outcome import Outcome
from ingest.bench.pipeline.plan import Plan
from ingest.bench.pipeline.readings import Reading
from ingest.lab.upstream.latency import Latency
from ingest.lab.upstream.stats import StatsReport

Figures = dict[str, Any]
"""Rounded to the precision of the measurement, or None if a value could not be measured."""

Sent = Mapping[str, tuple[float, float]]
"""Unix times at which each order was due and was announced, or empty if all were announced together."""

SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
_REJECTED = ("429", "503")
_WORST = {"lost", "dead_letters", "still_queued", "wrong", "load_late_p99_ms", "other_busy_cores"}


def medians(runs: Sequence[Figures]) -> Figures:
    """One row for several runs, with medians, the worst value of losses, and texts from the first run."""
    found = dict(runs[0])
    for name, first in found.items():
        values = [run[name] for run in runs if run[name] is not None]
        if values and isinstance(first, (int, float)):
            found[name] = max(values) if name in _WORST else median(values)
    return found


def worst(runs: Sequence[Figures], name: str) -> float:
    """The largest value of a figure in any run, or 0 if it was not measured."""
    return max(run[name] or 0.0 for run in runs)


def speed(plan: Plan, api: StatsReport, outcome: Outcome) -> Figures:
    """The speed from the first request at the API to the last commit."""
    last, first, stored = outcome.last_commit, api.first_request, len(outcome.rows)
    seconds = last - first.unix if last is not None and first is not None else None
    return {
        "stored": stored,
        "seconds": _rounded(seconds, 4),
        "orders_per_s": _rounded(stored / seconds, 1) if seconds else None,
        "ideal_seconds": _rounded(plan.ideal, 4),
        "ratio_to_ideal": _rounded(seconds / plan.ideal, 4) if seconds and plan.ideal else None,
        "peak_concurrency": api.peak_concurrency,
    }


def cost(startup_cpu: float, used: Reading, orders: int) -> Figures:
    """CPU time and round trips per order.

    Args:
        startup_cpu: CPU seconds of the contender until all of its processes had begun to read.
        used: usage from then until the queue was empty.
        orders: number of stored orders.
    """
    return {
        "own_cpu_us_per_order": _per_order(startup_cpu + used.contender, orders),
        "own_cpu_us_per_order_without_startup": _per_order(used.contender, orders),
        "startup_cpu_seconds": round(startup_cpu, 3),
        "redis_cpu_us_per_order": _per_order(used.redis, orders),
        "postgres_cpu_us_per_order": _per_order(used.postgres, orders),
        "api_cpu_us_per_order": _per_order(used.api, orders),
        "redis_round_trips_per_order": round(used.reads / max(1, orders), 4),
    }


def latencies(plan: Plan, sent: Sent, outcome: Outcome) -> Figures:
    """Milliseconds from an order's announcement, and from its last request, to its commit."""
    rows = outcome.rows
    whole = sorted(row.committed - (sent[name][1] if sent else row.enqueued) for name, row in rows.items())
    request = sorted(row.committed - row.asked for row in rows.values())
    found: Figures = {}
    for kind, values in (("latency", whole), ("request_to_commit", request)):
        for name, share in SHARES.items():
            value = quantile(values, share)
            found[f"{kind}_{name}_ms"] = _rounded(value and value * 1000, 2)
            above = None if value is None else value - Latency.parse(plan.latency).quantile(share)
            found[f"{kind}_{name}_above_api_ms"] = _rounded(above and above * 1000, 2)
    late = quantile(sorted(moment - due for due, moment in sent.values()), 0.99) or 0.0
    return {**found, "load_late_p99_ms": round(late * 1000, 2), "commit_clock": outcome.commit_clock}


def reconciled(api: StatsReport, outcome: Outcome) -> Figures:
    """The results of the orders and the number of their requests."""
    report, sample, status = outcome.report, outcome.sample, api.by_status
    rejected = sum(status.get(code, 0) for code in _REJECTED)
    repeated = sum(api.by_id.values()) - len(api.by_id)
    return {
        "lost": report.lost.count,
        "dead_letters": sum(report.dead_letters.values()),
        "still_queued": report.queued,
        "wrong": sample.wrong.count,
        "compared": sample.compared,
        "requests": api.requests,
        "duplicate_fetches": max(0, repeated - rejected),
        "rejected_requests": rejected,
        "answers": dict(status),
    }


def recovery(killed_at: float, api: StatsReport, outcome: Outcome) -> Figures:
    """Seconds from the kill until all orders, and all orders in flight in the killed process, were stored."""
    rows, last = outcome.rows, outcome.last_commit
    again = [rows[name].committed for name, count in api.by_id.items() if count > 1 and name in rows]
    return {
        "seconds_from_kill_to_done": None if last is None else round(last - killed_at, 3),
        "seconds_from_kill_to_recovered": round(max(again) - killed_at, 3) if again else None,
    }


def surroundings(used: Reading, load_cpu: float, seconds: float) -> Figures:
    """The use of the machine by other processes, which affects the figures. The load's CPU seconds are not others'."""
    other = used.machine - used.known - load_cpu
    return {
        "wall_seconds": round(seconds, 3),
        "other_busy_cores": round(max(0.0, other / seconds), 2) if seconds else None,
        "busy_cores": round(used.machine / seconds, 2) if seconds else None,
        "api_busy_cores": round(used.api / seconds, 2) if seconds else None,
    }


def quantile(sorted_values: Sequence[float], share: float) -> float | None:
    """A quantile of sorted values, interpolated between neighbours, or None without values."""
    if not sorted_values:
        return None
    position = share * (len(sorted_values) - 1)
    below = int(position)
    above = min(below + 1, len(sorted_values) - 1)
    return sorted_values[below] + (sorted_values[above] - sorted_values[below]) * (position - below)


def _per_order(seconds: float | None, orders: int) -> float | None:
    return None if seconds is None else round(seconds * 1e6 / max(1, orders), 1)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
