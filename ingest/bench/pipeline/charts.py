"""Draws a comparison: the speed of each contender, and its cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.bench.chart import OTHER, OURS, PALETTE, bars, figure, thousands
from ingest.bench.pipeline.figures import Figures
from ingest.bench.pipeline.plan import SERVICE, Plan

_PARTS = (
    ("own_cpu_us_per_order_without_startup", "own", PALETTE[3]),
    ("redis_cpu_us_per_order", "Redis", PALETTE[1]),
    ("postgres_cpu_us_per_order", "PostgreSQL", PALETTE[2]),
)
_TITLES = {SERVICE: "service", "bare": "bare loop"}
_HEIGHT_OF_A_BAR = 0.55
_HEIGHT_OF_THE_REST = 1.75


def draw_comparison(plan: Plan, rows: Sequence[Figures], path: Path) -> None:
    """Write the chart of some contenders' medians as `PATH.svg` and `PATH.png`."""
    names = [_name(row) for row in rows]
    colours = [OURS if row["contender"] == SERVICE else OTHER for row in rows]
    size = (11.0, _HEIGHT_OF_THE_REST + _HEIGHT_OF_A_BAR * len(rows))
    with figure(path, _sentence(plan, rows), columns=3, size=size) as (_, (speed, cost, memory)):
        if plan.rate:
            bars(
                speed, names, _values(rows, "latency_p99_ms"), label="announced to committed, p99, ms", colours=colours
            )
        else:
            bars(speed, names, _values(rows, "orders_per_s"), label="orders per second", colours=colours)
        _stacked(cost, names, rows)
        bars(memory, names, _values(rows, "peak_pss_mb"), label="peak memory (PSS), MB", colours=colours)
        for axis in (cost, memory):
            axis.set_yticks([])


def _stacked(axis: Any, names: list[str], rows: Sequence[Figures]) -> None:
    """CPU time of each contender, and of the servers on its behalf."""
    positions, ends = range(len(names)), [0.0] * len(names)
    for key, label, colour in _PARTS:
        values = _values(rows, key)
        axis.barh(positions, values, left=ends, color=colour, height=0.62, label=label)
        ends = [end + value for end, value in zip(ends, values, strict=True)]
    for position, end in zip(positions, ends, strict=True):
        axis.annotate(
            f"{end:,.0f}", (end, position), xytext=(4, 0), textcoords="offset points", va="center", fontsize=9
        )
    axis.set_yticks(positions, names)
    axis.invert_yaxis()
    axis.set_xlabel("CPU time per order, \N{MICRO SIGN}s")
    axis.grid(visible=False, axis="y")
    axis.margins(x=0.16)
    thousands(axis.xaxis)
    axis.legend(
        loc="lower left",
        bbox_to_anchor=(-0.02, 1.0),
        ncols=3,
        fontsize=8.5,
        handlelength=1,
        columnspacing=1,
        borderpad=0,
    )


def _sentence(plan: Plan, rows: Sequence[Figures]) -> str:
    service, *rivals = rows
    if plan.rate:
        key, unit = "latency_p99_ms", " ms"
        said = (
            f"At {plan.rate:,.0f} orders a second, 99 % are stored within {service[key]:,.0f} ms of their announcement"
        )
    else:
        key, unit = "orders_per_s", ""
        said = f"The service stores {service[key]:,.0f} orders a second with {plan.in_flight:,} in flight"
    return "; ".join([said, *(f"{_name(rival)}: {rival[key]:,.0f}{unit}" for rival in rivals)])


def _name(row: Figures) -> str:
    return _TITLES.get(str(row["contender"]), str(row["contender"]))


def _values(rows: Sequence[Figures], key: str) -> list[float]:
    return [float(row[key] or 0.0) for row in rows]
