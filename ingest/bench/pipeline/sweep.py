"""One run for each value of an option, and the value from which on more of it gains little."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ingest.bench.pipeline.figures import Figures
from ingest.bench.pipeline.plan import Plan
from ingest.bench.report import Column, Table
from ingest.domain.errors import ConfigError

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
    def parse(cls, text: str, plan: Plan) -> "Sweep":
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

    def knee(self, throughputs: Sequence[float]) -> Any:
        """The value from which on more gains little, given the throughput at each."""
        return knee(self.values, throughputs)

    def latency_kind(self, plan: Plan) -> str:
        """Which latency is meaningful: of an order that arrives, or of one that waited in a backlog."""
        return "latency" if self.option == "rate" or plan.rate else "request_to_commit"


def knee(values: Sequence[Any], throughputs: Sequence[float]) -> Any:
    """The first value that has `ENOUGH` of the best throughput; the last one, where throughput falls from the first on."""
    enough = ENOUGH * max(throughputs)
    good = [value for value, throughput in zip(values, throughputs, strict=True) if throughput >= enough]
    return good[-1] if good[0] == values[0] else good[0]


def sweep_table(sweep: Sweep, plan: Plan, rows: Sequence[Figures]) -> Table:
    """A row for each value."""
    kind = sweep.latency_kind(plan)
    name = "announced" if kind == "latency" else "requested"
    columns = [
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
    return Table(f"Sweep of --{sweep.option}", columns, rows)


def sweep_notes(sweep: Sweep, plan: Plan, runs: Sequence[Figures], knee: Any) -> list[str]:
    """What the table does not say."""
    each = len(runs) // len(sweep.values)
    medians = f"; medians of {each} runs" if each > 1 else ""
    return [
        f"The knee is at --{sweep.option} {knee}: {_RULE}.",
        f"{plan.orders:,} orders a run{medians}.",
        f"Others on the machine used {max(run['other_busy_cores'] or 0.0 for run in runs):.2f} cores in the worst run.",
    ]
