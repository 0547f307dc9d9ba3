"""One run for each value of an option, and the value from which on more of it gains little."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ingest.bench.panels import OTHER, OURS, WARN, Chart, Lines, Series
from ingest.bench.pipeline.figures import Figures, worst
from ingest.bench.pipeline.plan import Plan
from ingest.bench.report import Column, Table
from ingest.domain.errors import ConfigError

ENOUGH = 0.95
"""The knee is where the throughput is this share of the best."""
_RULE = (
    f"the first value with at least {ENOUGH:.0%} of the best throughput, or, where throughput falls from the first value on, "
    "the last such value"
)

_NEAR = 0.15
_WIDE_RANGE = 6


@dataclass(frozen=True, slots=True)
class Option:
    """An option whose values can be swept.

    Attributes:
        read: reads a value.
        unit: of a value, for people.
        axis: the title of its axis.
        has_ideal: whether the ideal throughput depends on it.
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
        if option not in _OPTIONS or not equals:
            raise ConfigError(f"--sweep is OPTION=VALUE,VALUE,... with one of {', '.join(_OPTIONS)}")
        kind = _OPTIONS[option].read
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
    # A value is written above its marker where the axis is too near below; below it where the upper line is near.
    above = [-15 if rate > _NEAR * max(rates) else 7 for rate in rates]
    beside = [-15 if tail - median < _NEAR * max(tails) else 7 for tail, median in zip(tails, medians, strict=True)]
    throughput = [*_ideal(sweep.plans, option), Series("measured", rates, OURS, "o", above)]
    latency = [Series("p99", tails, WARN, "s", [7] * len(tails)), Series("p50", medians, OURS, "o", beside)]
    what = f"{'announced' if kind == 'latency' else 'requested'} to committed, ms"
    upper = Lines(
        "orders per second", axis, throughput, (0, max(rates) * 1.35), is_log=is_wide, marked=(at_knee, f"knee: {knee}")
    )
    limits = (-max(tails) * 0.08, max(tails) * 1.3)
    lower = Lines(what, axis, latency, limits, option.axis, is_log=is_wide, marked=(at_knee, ""))
    title = f"{max(rates):,.0f} orders a second at best; the knee is at {knee} {option.unit}"
    return Chart(title, [[upper], [lower]], (8, 6.2))


def _ideal(plans: Sequence[Plan], option: Option) -> list[Series]:
    """What arrives, or the throughput with every slot fetching without a pause; nothing where that is not known."""
    ideals = [plan.rate or (plan.orders / plan.ideal if plan.ideal else 0.0) for plan in plans]
    label = "arriving" if plans[0].rate else "ideal: in flight / mean latency"
    return [Series(label, ideals, OTHER)] if option.has_ideal and all(ideals) else []
