"""Draws the comparison: requests per second and tails by pool size, and what a blocking call does to both."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ingest.bench import chart
from ingest.bench.select.pausing import PAUSES
from ingest.bench.select.readers import KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from ingest.bench.select.compare import Found, Plan

_COLOURS = {"async_in_turn": chart.OURS, "async_plain": "#93b7e0", "threads": chart.OTHER}
_PAUSE_COLOURS = {"none": chart.OTHER, "blocking": chart.WARN, "awaited": chart.OURS, "thread": chart.PALETTE[2]}
_WIDTH = 0.28


def draw(plan: Plan, reading: Sequence[Found], pausing: Sequence[Found], path: Path) -> None:
    """Write `PATH` and `PATH-blocking`, each as `.svg` and `.png`."""
    _draw_reading(plan, reading, path)
    _draw_pausing(plan, pausing, path.with_name(f"{path.name}-blocking"))


def _draw_reading(plan: Plan, reading: Sequence[Found], path: Path) -> None:
    columns = len(plan.processes)
    title = f"Reading stored orders, {plan.clients:,} clients: async pool and threads"
    size = (max(7.5, 1.5 + 4.2 * columns), 8.6)
    with chart.figure(path, title, rows=3, columns=columns, size=size) as (drawn, axes):
        grid = axes.reshape(3, columns)
        for column, processes in enumerate(plan.processes):
            mine = [found for found in reading if found.setting.processes == processes]
            _pairs(grid[0, column], plan.pools, mine, lambda found: found.per_second)
            _pairs(grid[1, column], plan.pools, mine, lambda found: found.measured.p95_ms or 0.0)
            _pairs(grid[2, column], plan.pools, mine, lambda found: found.measured.longest_ms)
            grid[0, column].set_title(f"{processes} server process{'es' * (processes > 1)}")
            grid[2, column].set_xlabel("connections of each process")
        grid[0, 0].set_ylabel("requests/s")
        grid[1, 0].set_ylabel("p95 of the answers (ms)")
        grid[2, 0].set_ylabel("longest wait (ms)")
        for row in grid:
            top = max(axis.get_ylim()[1] for axis in row)
            for axis in row:
                axis.set_ylim(0, top)
        drawn.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)


def _pairs(axis: Any, pools: Sequence[int], mine: Sequence[Found], value: Callable[[Found], float]) -> None:
    """For each pool size a bar of each kind."""
    for number, (kind, title) in enumerate(KINDS.items()):
        values = [value(found) for found in mine if found.setting.kind == kind]
        positions = [place + (number - 1) * _WIDTH for place in range(len(pools))]
        drawn = axis.bar(positions, values, _WIDTH, label=title, color=_COLOURS[kind])
        axis.bar_label(drawn, labels=[f"{height:,.0f}" for height in values], padding=2, fontsize=8)
    axis.set_xticks(range(len(pools)), [str(pool) for pool in pools])
    axis.grid(visible=False, axis="x")
    axis.margins(y=0.15)
    chart.thousands(axis.yaxis)


def _draw_pausing(plan: Plan, pausing: Sequence[Found], path: Path) -> None:
    title = f"What a slow call does to all others: 0.1 s in one of {plan.blocking_every:,} requests, {plan.blocking_clients:,} clients"
    names = [PAUSES[found.setting.pause] for found in pausing]
    colours = [_PAUSE_COLOURS[found.setting.pause] for found in pausing]
    with chart.figure(path, title, columns=2, size=(11, 3.6)) as (_, (rate, tails)):
        chart.bars(rate, names, [found.per_second for found in pausing], label="requests/s", colours=colours)
        _tails(tails, pausing)


def _tails(axis: Any, pausing: Sequence[Found]) -> None:
    width = 0.2
    for number, found in enumerate(pausing):
        measured = found.measured
        values = [measured.p50_ms or 0.0, measured.p95_ms or 0.0, measured.p99_ms or 0.0]
        positions = [place + (number - (len(pausing) - 1) / 2) * width for place in range(3)]
        drawn = axis.bar(positions, values, width, color=_PAUSE_COLOURS[found.setting.pause])
        axis.bar_label(drawn, labels=[f"{height:,.0f}" for height in values], padding=2, fontsize=8)
    axis.set_xticks(range(3), ["p50", "p95", "p99"])
    axis.set_ylabel("latency (ms)")
    axis.grid(visible=False, axis="x")
    axis.margins(y=0.12)
