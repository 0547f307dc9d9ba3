"""Computes a run's figures from its record, each by a name that ends with its unit."""

from collections.abc import Sequence
from statistics import median
from typing import Any

from ingest.bench.pipeline.latency import quantile, quantile_of
from ingest.bench.pipeline.run import Record

Figures = dict[str, Any]
SHARES = {"p50": 0.5, "p99": 0.99, "p999": 0.999}
_REFUSED = ("429", "503")
_WORST = {"lost", "dead_letters", "still_queued", "wrong", "load_late_p99_ms", "other_busy_cores"}


def figures_of(record: Record) -> Figures:
    """All figures, rounded to the precision of the measurement."""
    return {
        "contender": record.contender,
        "in_flight": record.plan.in_flight,
        **_speed(record),
        **_cost(record),
        **_latencies(record),
        **_reconciled(record),
        **_kill(record),
        **_surroundings(record),
    }


def medians(runs: Sequence[Figures]) -> Figures:
    """One row for several runs: medians; the worst of what should be 0; what is no number from the first run."""
    found = dict(runs[0])
    for name, first in found.items():
        values = [run[name] for run in runs if run[name] is not None]
        if values and isinstance(first, (int, float)):
            found[name] = max(values) if name in _WORST else median(values)
    return found


def _speed(record: Record) -> Figures:
    last, first, stored = _last_commit(record), record.api.first_request, len(record.outcome.rows)
    seconds = last - first if last is not None and first is not None else None
    ideal = record.plan.ideal
    return {
        "stored": stored,
        "seconds": _rounded(seconds, 4),
        "orders_per_s": _rounded(stored / seconds, 1) if seconds else None,
        "ideal_seconds": _rounded(ideal, 4),
        "ratio_to_ideal": _rounded(seconds / ideal, 4) if seconds and ideal else None,
        "wall_seconds": round(record.seconds, 3),
        "peak_concurrency": record.api.peak_concurrency,
    }


def _cost(record: Record) -> Figures:
    used = record.used
    return {
        "own_cpu_us_per_order": _per_order(record, record.startup_cpu + used.contender),
        "own_cpu_us_per_order_without_startup": _per_order(record, used.contender),
        "startup_cpu_seconds": round(record.startup_cpu, 3),
        "redis_cpu_us_per_order": _per_order(record, used.redis),
        "postgres_cpu_us_per_order": _per_order(record, used.postgres),
        "redis_round_trips_per_order": round((used.reads - record.own_reads) / max(1, len(record.outcome.rows)), 4),
        "peak_pss_mb": round(record.peak_memory / 1e6, 1),
    }


def _latencies(record: Record) -> Figures:
    """From the announcement to the commit, and from the last request for the order to the commit, in milliseconds."""
    rows, sent, rate = record.outcome.rows, record.sent, record.plan.rate
    whole = sorted(
        row.committed - (sent[name].sent if rate else row.enqueued) for name, row in rows.items() if name in sent
    )
    request = sorted(row.committed - row.asked for row in rows.values())
    found: Figures = {}
    for kind, values in (("latency", whole), ("request_to_commit", request)):
        for name, share in SHARES.items():
            value = quantile(values, share)
            found[f"{kind}_{name}_ms"] = _rounded(value and value * 1000, 2)
            above = None if value is None else value - quantile_of(record.plan.latency, share)
            found[f"{kind}_{name}_above_api_ms"] = _rounded(above and above * 1000, 2)
    late = quantile(sorted(one.sent - one.planned for one in sent.values()), 0.99)
    return {
        **found,
        "load_late_p99_ms": _rounded(late and late * 1000, 2),
        "commit_clock": record.outcome.commit_clock,
    }


def _reconciled(record: Record) -> Figures:
    report, sample, status = record.outcome.report, record.outcome.sample, record.api.by_status
    refused = sum(status.get(code, 0) for code in _REFUSED)
    repeated = sum(record.api.by_id.values()) - len(record.api.by_id)
    return {
        "lost": report.lost.count,
        "dead_letters": sum(report.dead_letters.values()),
        "still_queued": report.queued,
        "wrong": sample.wrong.count,
        "compared": sample.compared,
        "requests": record.api.requests,
        "duplicate_fetches": max(0, repeated - refused),
        "refused_requests": refused,
        "answers": dict(status),
        "exit_codes": list(record.exit_codes),
    }


def _kill(record: Record) -> Figures:
    """How long after the kill everything was stored, and the last of what the killed process had in flight."""
    if record.killed_at is None:
        return {}
    rows, last = record.outcome.rows, _last_commit(record)
    again = [rows[name].committed for name, count in record.api.by_id.items() if count > 1 and name in rows]
    return {
        "seconds_from_kill_to_done": None if last is None else round(last - record.killed_at, 3),
        "seconds_from_kill_to_recovered": round(max(again) - record.killed_at, 3) if again else None,
    }


def _surroundings(record: Record) -> Figures:
    """What else used the machine meanwhile, which affects the figures."""
    other = record.used.machine - record.used.known - record.load_cpu
    return {
        "load_before": round(record.load_before, 2),
        "api_cpu_us_per_order": _per_order(record, record.used.api),
        "other_busy_cores": round(max(0.0, other / record.seconds), 2) if record.seconds else None,
        "busy_cores": round(record.used.machine / record.seconds, 2) if record.seconds else None,
    }


def _last_commit(record: Record) -> float | None:
    return max((row.committed for row in record.outcome.rows.values()), default=None)


def _per_order(record: Record, seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1e6 / max(1, len(record.outcome.rows)), 1)


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)
