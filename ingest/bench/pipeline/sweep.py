"""Runs the service at each value of an option, and finds the knee, above which a higher value gains little."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ingest.bench.panels import OTHER, OURS, WARN, Chart, Lines, Series
from ingest.bench.pipeline.figures import Figures, worst
from ingest.bench.pipeline.plan import Plan
from ingest.bench.report import Column, Table
from ingest.domain.errors import ConfigError

ENOUGH = 0.95
"""The knee is the value with this share of the best throughput."""
_RULE = (
    f"the first value with at least {ENOUGH:.0%} of the best throughput, or the last such value if throughput falls "
    "from the first value on"
)

_NEAR = 0.15
_WIDE_RANGE = 6


@dataclass(frozen=True, slots=True)
class Option:
    """An option whose values can be swept.

    Attributes:
        read: reads a value.
        unit: unit of a value for the title.
        axis: the title of its axis.
        has_ideal: whether the ideal throughput depends on the option.
    """

    read: Callable[[str], Any]
    unit: str
    axis: str
    has_ideal: bool = False


_OPTIONS = {
    "in-flight": Option(int, "orders in flight", "orders in flight, over all processes", has_ideal=True),
    "processes": Option(int, "processes", "worker processes"),
    "latency": Option(str, "s of latency", "latency of the external API, s", has_ideal=True),
    "batch-rows": Option(int, "rows in a transaction", "most rows in one transaction"),
    "rate": Option(float, "arriving orders a second", "arriving orders per second", has_ideal=True),
}


@dataclass(frozen=True, slots=True)
class Sweep:
    """An option and the plans at its values, in the given order."""

    option: str
    values: Sequence[Any]
    plans: Sequence[Plan]

    @classmethod
    def parse(cls, text: str, plan: Plan) -> "Sweep":
        """Read an option and its values, such as `in-flight=50,100`.

        Raises:
            ConfigError: the text cannot be read, or a value cannot be used.
        """
        option, equals, rest = text.partition("=")
        if option not in _OPTIONS or not equals:
            raise ConfigError(f"--sweep is OPTION=VALUE,VALUE,... with one of {', '.join(_OPTIONS)}")
        kind = _OPTIONS[option].read
        # lognormal:MEDIAN,SIGMA contains a comma.
        if option == "latency" and "lognormal" in rest:
            raise ConfigError("--sweep latency only accepts fixed and uniform latencies")
        try:
            values = [kind(value) for value in rest.split(",")]
        except ValueError:
            raise ConfigError(f"--sweep {option}: {rest!r} is not a list of numbers separated by commas") from None
        if len(values) < 2 or (kind is not str and min(values) <= 0):
            raise ConfigError(f"--sweep {option} needs two or more values, all above 0")
        return cls(option, values, [replace(plan, **{option.replace("-", "_"): value}) for value in values])

    def knee(self, throughputs: Sequence[float]) -> Any:
        """The value above which more gains little, given the throughput at each value."""
        return knee(self.values, throughputs)

    def latency_kind(self, plan: Plan) -> str:
        """The meaningful latency, which differs between arriving orders and orders that waited in a backlog."""
        return "latency" if self.option == "rate" or plan.rate else "request_to_commit"


def knee(values: Sequence[Any], throughputs: Sequence[float]) -> Any:
    """The first value with `ENOUGH` of the best throughput, or the last one if throughput falls from the first on."""
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
        Column("peak_concurrency", "peak concurrency at the API"),
        Column("lost", "lost"),
    ]
    return Table(f"Sweep of --{sweep.option}", columns, rows)


def sweep_notes(sweep: Sweep, plan: Plan, runs: Sequence[Figures], knee: Any) -> list[str]:
    """Notes below the table."""
    each = len(runs) // len(sweep.values)
    medians = f"; medians of {each} runs" if each > 1 else ""
    return [
        f"The knee is at --{sweep.option} {knee}: {_RULE}.",
        f"{plan.orders:,} orders a run{medians}.",
        f"Others on the machine used {worst(runs, 'other_busy_cores'):.2f} cores in the worst run.",
    ]


def sweep_chart(sweep: Sweep, plan: Plan, rows: Sequence[Figures], knee: Any) -> Chart:
    """Throughput and latency over the option's values, with the knee."""
    values, option = sweep.values, _OPTIONS[sweep.option]
    is_number = option.read is not str
    axis = [
        (value if is_number else place, f"{value:,g}" if is_number else value) for place, value in enumerate(values)
    ]
    at_knee = axis[list(values).index(knee)][0]
    is_wide = is_number and max(values) / min(values) >= _WIDE_RANGE
    rates = [row["orders_per_s"] or 0.0 for row in rows]
    kind = sweep.latency_kind(plan)
    tails, medians = ([row[f"{kind}_{share}_ms"] or 0.0 for row in rows] for share in ("p99", "p50"))
    # A value is written above its marker if the axis is too close below, and below it if the upper line is close.
    above = [-15 if rate > _NEAR * max(rates) else 7 for rate in rates]
    beside = [-15 if tail - median < _NEAR * max(tails) else 7 for tail, median in zip(tails, medians, strict=True)]
    throughput = [*_ideal(sweep.plans, option), Series("measured", rates, OURS, "o", above)]
    latency = [Series("p99", tails, WARN, "s", [7] * len(tails)), Series("p50", medians, OURS, "o", beside)]
    label = f"{'announced' if kind == 'latency' else 'requested'} to committed, ms"
    upper = Lines(
        "orders per second", axis, throughput, (0, max(rates) * 1.35), is_log=is_wide, marked=(at_knee, f"knee: {knee}")
    )
    limits = (-max(tails) * 0.08, max(tails) * 1.3)
    lower = Lines(label, axis, latency, limits, option.axis, is_log=is_wide, marked=(at_knee, ""))
    title = f"{max(rates):,.0f} orders a second at best; the knee is at {knee} {option.unit}"
    return Chart(title, [[upper], [lower]], (8, 6.2))


def _ideal(plans: Sequence[Plan], option: Option) -> list[Series]:
    """The arriving orders, or the throughput with every slot fetching without a pause, or an empty list if unknown."""
    ideals = [plan.rate or (plan.orders / plan.ideal if plan.ideal else 0.0) for plan in plans]
    label = "arriving" if plans[0].rate else "ideal: in flight / mean latency"
    return [Series(label, ideals, OTHER)] if option.has_ideal and all(ideals) else []
