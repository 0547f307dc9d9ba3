"""Draws the comparison: time and peak memory by way."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.bench import chart
from ingest.bench.backpressure.compare import Pair, Plan
from ingest.bench.backpressure.ways import OURS, WAYS

_COLOURS = [chart.OURS if name == OURS else chart.OTHER for name in WAYS]


def draw(plan: Plan, pairs: Sequence[Pair], path: Path) -> None:
    """Write `PATH.svg` and `PATH.png`: a row of axes for each range of latencies."""
    rows = len(plan.latencies)
    title = f"{plan.calls:,} calls with {plan.limit:,} in flight: time, and what waits in memory"
    size = (11, 0.6 + 2.5 * rows)
    with chart.figure(path, title, rows=rows, columns=2, size=size) as (_, axes):
        for latency, (time, memory) in zip(plan.latencies, axes.reshape(rows, 2), strict=True):
            mine = [pair for pair in pairs if pair.latency == latency]
            _draw_time(time, mine)
            time.set_title(f"calls of {latency} ms")
            _draw_memory(memory, mine)


def _draw_time(axis: Any, pairs: Sequence[Pair]) -> None:
    ideal = pairs[0].timed.ideal_seconds
    names = [WAYS[pair.way] for pair in pairs]
    digits = 1 if ideal >= 10 else 2
    chart.bars(axis, names, [pair.timed.seconds for pair in pairs], label="time (s)", colours=_COLOURS, digits=digits)
    axis.axvline(ideal, color=chart.WARN, linestyle="--", linewidth=1)
    axis.annotate(
        f"ideal {ideal:.{digits}f}", (ideal, 1), xycoords=("data", "axes fraction"), xytext=(-4, 2),
        textcoords="offset points", color=chart.WARN, fontsize=8, ha="right",
    )  # fmt: skip


def _draw_memory(axis: Any, pairs: Sequence[Pair]) -> None:
    peaks = [(pair.traced.peak_bytes or 0) / 1e6 for pair in pairs]
    chart.bars(axis, [""] * len(pairs), peaks, label="peak memory (MB, log scale)", colours=_COLOURS, digits=2)
    axis.set_xscale("log")
    axis.set_xlim(left=min(peaks) / 4, right=max(peaks) * 4)
    axis.xaxis.set_major_formatter("{x:g}")
