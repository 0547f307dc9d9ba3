"""One run for each value of an option, and where more of it stops to pay off."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ingest.bench.machine import Machine
from ingest.bench.pipeline.figures import medians
from ingest.bench.pipeline.plan import SERVICE
from ingest.bench.pipeline.session import Result, session
from ingest.bench.report import Column, Report, Table
from ingest.domain.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ingest.bench.pipeline.figures import Figures
    from ingest.bench.pipeline.plan import Plan
    from ingest.bench.pipeline.session import Servers

NAME = "pipeline-sweep"
ENOUGH = 0.95
"""The knee is where the throughput is this share of the best."""
_RULE = (
    f"the first value with at least {ENOUGH:.0%} of the best throughput, or, where throughput falls from the first value on, "
    "the last such value"
)

_KINDS: dict[str, Callable[[str], Any]] = {
    "in-flight": int,
    "processes": int,
    "latency": str,
    "batch-rows": int,
    "rate": float,
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """An option, and the plans at its values, in the order given."""

    option: str
    values: Sequence[Any]
    plans: Sequence[Plan]

    @classmethod
    def parse(cls, text: str, plan: Plan) -> Sweep:
        """Read `in-flight=50,100`.

        Raises:
            ConfigError: it cannot be read, or a value cannot be used.
        """
        option, equals, rest = text.partition("=")
        kind = _KINDS.get(option)
        if kind is None or not equals:
            raise ConfigError(f"--sweep is OPTION=VALUE,VALUE,... with one of {', '.join(_KINDS)}")
        # A comma is a part of lognormal:MEDIAN,SIGMA.
        if option == "latency" and "lognormal" in rest:
            raise ConfigError("--sweep latency takes fixed and uniform latencies only")
        try:
            values = [kind(value) for value in rest.split(",")]
        except ValueError:
            raise ConfigError(f"--sweep {option}: {rest!r} are not numbers with commas between them") from None
        if len(values) < 2 or (kind is not str and min(values) <= 0):
            raise ConfigError(f"--sweep {option} needs two or more values, all above 0")
        return cls(option, values, [replace(plan, **{option.replace("-", "_"): value}) for value in values])


def knee(values: Sequence[Any], throughputs: Sequence[float]) -> Any:
    """The first value that has `ENOUGH` of the best throughput; the last one, where throughput falls from the first on."""
    enough = ENOUGH * max(throughputs)
    good = [value for value, throughput in zip(values, throughputs, strict=True) if throughput >= enough]
    return good[-1] if good[0] == values[0] else good[0]


def run_sweep(plan: Plan, sweep: Sweep, *, runs: int, servers: Servers, command: str) -> Result:
    """Run the service at each value; report a row each, the medians of `runs` runs."""
    machine = Machine.here()
    done: list[Figures] = []
    with session(servers) as on:
        for _ in range(runs):
            done += [
                {"swept": value, **on.run(at_value, SERVICE)}
                for value, at_value in zip(sweep.values, sweep.plans, strict=True)
            ]
    rows = [medians([run for run in done if run["swept"] == value]) for value in sweep.values]
    found = knee(sweep.values, [row["orders_per_s"] or 0.0 for row in rows])
    report = Report(
        name=NAME,
        command=command,
        machine=machine,
        settings={**plan.as_dict(), "runs": runs, "sweep": sweep.option, "values": list(sweep.values), "knee": found},
        tables=[Table(f"Sweep of --{sweep.option}", _columns(sweep, plan), rows)],
        notes=[
            f"The knee is at --{sweep.option} {found}: {_RULE}.",
            f"{plan.orders:,} orders a run; medians of {runs} runs." if runs > 1 else f"{plan.orders:,} orders a run.",
            f"Others on the machine used {max(run['other_busy_cores'] or 0.0 for run in done):.2f} cores in the worst run.",
        ],
        runs=done,
    )
    return Result(report, partial(_draw, sweep, rows, found, latency_kind(sweep.option, plan.rate)))


def _draw(sweep: Sweep, rows: Sequence[Figures], found: Any, kind: str, path: Path) -> None:
    from ingest.bench.pipeline.curve import draw_curve  # noqa: PLC0415  Matplotlib takes half a second

    draw_curve(sweep, rows, found, kind, path)


def latency_kind(option: str, rate: float) -> str:
    """Which latency says something: of an order that arrives, or of one that waited in a backlog."""
    return "latency" if option == "rate" or rate else "request_to_commit"


def _columns(sweep: Sweep, plan: Plan) -> list[Column]:
    kind = latency_kind(sweep.option, plan.rate)
    name = "announced" if kind == "latency" else "requested"
    return [
        Column("swept", f"--{sweep.option}"),
        Column("orders_per_s", "orders/s"),
        Column("ratio_to_ideal", "x ideal", 3),
        Column(f"{kind}_p50_ms", f"{name} to committed, ms: p50", 1),
        Column(f"{kind}_p99_ms", "p99", 1),
        Column("own_cpu_us_per_order_without_startup", "own CPU, us/order"),
        Column("redis_cpu_us_per_order", "Redis"),
        Column("postgres_cpu_us_per_order", "PostgreSQL"),
        Column("peak_pss_mb", "peak memory (PSS), MB", 1),
        Column("peak_concurrency", "at once at the API"),
        Column("lost", "lost"),
    ]
