"""The chart of a sweep: throughput and latency over the option's values, with the knee."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.bench.chart import OTHER, OURS, WARN, figure, thousands
from ingest.bench.pipeline.figures import Figures
from ingest.bench.pipeline.plan import Plan
from ingest.bench.pipeline.sweep import Sweep

_WIDE_RANGE = 6
_NEAR = 0.15
_WHOLE = 10
_UNITS = {
    "in-flight": "orders in flight",
    "processes": "processes",
    "latency": "s of latency",
    "batch-rows": "rows in a transaction",
    "rate": "arriving orders a second",
}
_LABELS = {
    "in-flight": "orders in flight, over all processes",
    "processes": "worker processes",
    "latency": "latency of the external API, s",
    "batch-rows": "most rows in one transaction",
    "rate": "arriving orders per second",
}


def draw_curve(sweep: Sweep, rows: Sequence[Figures], knee: Any, kind: str, path: Path) -> None:
    """Write the chart of a sweep as `PATH.svg` and `PATH.png`.

    Args:
        sweep: what was asked for.
        rows: medians, one for each value.
        knee: the value from which on more gains little.
        kind: which latency: `latency` or `request_to_commit`.
        path: where, without a suffix.
    """
    option, plans = sweep.option, sweep.plans
    values = [row["swept"] for row in rows]
    is_number = all(isinstance(value, (int, float)) for value in values)
    positions = values if is_number else list(range(len(values)))
    at_knee = positions[values.index(knee)]
    rates = [row["orders_per_s"] or 0.0 for row in rows]
    title = f"{max(rates):,.0f} orders a second at best; the knee is at {knee} {_UNITS[option]}"
    with figure(path, title, rows=2, size=(8, 6.2)) as (_, (upper, lower)):
        _throughput(upper, positions, rates, plans if option in {"in-flight", "latency", "rate"} else ())
        _latency(lower, positions, rows, kind)
        for axis in (upper, lower):
            axis.axvline(at_knee, color=WARN, linewidth=1, linestyle=(0, (4, 3)), zorder=1)
            thousands(axis.yaxis)
            if is_number and max(positions) / min(positions) >= _WIDE_RANGE:
                axis.set_xscale("log")
            axis.minorticks_off()
            axis.set_xticks(positions, [f"{value:,g}" if is_number else str(value) for value in values])
            axis.margins(x=0.06)
        upper.annotate(
            f"knee: {knee}",
            (at_knee, 0),
            xytext=(5, 6),
            textcoords="offset points",
            color=WARN,
            fontsize=9.5,
            fontweight="bold",
        )
        lower.set_xlabel(_LABELS[option])


def _throughput(axis: Any, positions: Sequence[Any], rates: Sequence[float], plans: Sequence[Plan]) -> None:
    ideals = [plan.rate or (plan.orders / plan.ideal if plan.ideal else None) for plan in plans]
    top = max(rates)
    if ideals and all(ideals):
        label = "arriving" if plans[0].rate else "ideal: in flight / mean latency"
        axis.plot(positions, ideals, color=OTHER, linewidth=1.3, linestyle="--", label=label)
    axis.plot(positions, rates, color=OURS, marker="o", linewidth=2, label="measured")
    for position, rate in zip(positions, rates, strict=True):
        # Above its marker where the axis is too near below.
        _note(axis, f"{rate:,.0f}", (position, rate), -15 if rate > _NEAR * top else 7)
    axis.set_ylim(0, top * 1.35)
    axis.set_ylabel("orders per second")
    axis.legend(loc="upper left", fontsize=9)


def _latency(axis: Any, positions: Sequence[Any], rows: Sequence[Figures], kind: str) -> None:
    what = "announced to committed" if kind == "latency" else "requested to committed"
    upper, lower = ([float(row[f"{kind}_{share}_ms"] or 0.0) for row in rows] for share in ("p99", "p50"))
    axis.plot(positions, upper, color=WARN, marker="s", linewidth=2, label="p99")
    axis.plot(positions, lower, color=OURS, marker="o", linewidth=2, label="p50")
    for position, high, low in zip(positions, upper, lower, strict=True):
        # Below its marker, where the upper line is near.
        side = -15 if high - low < _NEAR * max(upper) else 7
        for value, offset in ((high, 7), (low, side)):
            text = f"{value:,.0f}" if value >= _WHOLE else f"{value:.1f}"
            _note(axis, text, (position, value), offset)
    axis.set_ylabel(f"{what}, ms")
    axis.set_ylim(-max(upper) * 0.08, max(upper) * 1.3)
    axis.legend(loc="upper left", fontsize=9)


def _note(axis: Any, text: str, point: tuple[Any, float], offset: float) -> None:
    """A value above or below its marker, on a white ground that separates it from the grid."""
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    axis.annotate(
        text, point, xytext=(0, offset), textcoords="offset points", ha="center", fontsize=8.5, bbox=ground, zorder=3
    )
