"""Draws the comparison: requests per second and tails by pool size, and the effect of a slow call on both."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ingest.bench import chart
from ingest.bench.select.compare import Found, Plan
from ingest.bench.select.pausing import PAUSES
from ingest.bench.select.readers import KINDS

_COLOURS = {"async_in_turn": chart.OURS, "async_plain": "#93b7e0", "threads": chart.OTHER}
_PAUSE_COLOURS = {"none": chart.OTHER, "blocking": chart.WARN, "awaited": chart.OURS, "thread": chart.PALETTE[2]}


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
            _draw_column(grid[:, column], plan, [found for found in reading if found.setting.processes == processes])
            grid[0, column].set_title(f"{processes} server process{'es' * (processes > 1)}")
        for row, label in zip(grid, ("requests/s", "p95 of the answers (ms)", "longest wait (ms)"), strict=True):
            row[0].set_ylabel(label)
            top = max(axis.get_ylim()[1] for axis in row)
            for axis in row:
                axis.set_ylim(0, top)
        drawn.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=9)


def _draw_column(axes: Any, plan: Plan, mine: Sequence[Found]) -> None:
    """For each pool size a bar of each kind, of rate, tail and longest wait."""
    by_kind = {kind: [found for found in mine if found.setting.kind == kind] for kind in KINDS}
    groups = [str(pool) for pool in plan.pools]
    for axis, value in zip(axes, ("per_second", "p95_ms", "longest_ms"), strict=True):
        series = [(KINDS[kind], _values(found, value), _COLOURS[kind]) for kind, found in by_kind.items()]
        chart.grouped_bars(axis, groups, series, width=0.28)
        chart.thousands(axis.yaxis)
    axes[-1].set_xlabel("connections of each process")


def _values(all_found: Sequence[Found], name: str) -> list[float]:
    return [found.per_second if name == "per_second" else getattr(found.measured, name) or 0.0 for found in all_found]


def _draw_pausing(plan: Plan, pausing: Sequence[Found], path: Path) -> None:
    title = (
        f"Effect of a slow call on all others: 0.1 s in one of {plan.blocking_every:,} requests, "
        f"{plan.blocking_clients:,} clients"
    )
    names = [PAUSES[found.setting.pause] for found in pausing]
    colours = [_PAUSE_COLOURS[found.setting.pause] for found in pausing]
    shares = ("p50", "p95", "p99")
    with chart.figure(path, title, columns=2, size=(11, 3.6)) as (_, (rate, tails)):
        chart.bars(rate, names, [found.per_second for found in pausing], label="requests/s", colours=colours)
        tail_series = [
            (name, [_values([found], f"{share}_ms")[0] for share in shares], colour)
            for name, found, colour in zip(names, pausing, colours, strict=True)
        ]
        chart.grouped_bars(tails, shares, tail_series, width=0.2)
        tails.set_ylabel("latency (ms)")
