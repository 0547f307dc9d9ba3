"""Metrics in shared memory, written by the processes of one command and read by /metrics.

They live in one anonymous shared memory map, created before the processes are forked, with one row for each process slot
and one cell (float64) for each time series. Each process writes only its own row, so there are no locks, and an increment
is one addition. The successor of a killed process continues from its counts, so counters never decrease.

The multi-process mode of prometheus_client keeps a file for each process and metric instead. It does not support custom
collectors, and an observation costs ten times as much.
"""

import mmap
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

_CELL = 8


class Counter:
    """One counter series of one process."""

    __slots__ = ("_at", "_cells")

    def __init__(self, cells: "memoryview[float]", at: int) -> None:
        self._cells = cells
        self._at = at

    def inc(self, by: float = 1.0) -> None:
        """Add `by`."""
        self._cells[self._at] += by


class Gauge:
    """One gauge series of one process."""

    __slots__ = ("_at", "_cells")

    def __init__(self, cells: "memoryview[float]", at: int) -> None:
        self._cells = cells
        self._at = at

    def set(self, value: float) -> None:
        """Set to `value`."""
        self._cells[self._at] = value


class Histogram:
    """One histogram series of one process."""

    __slots__ = ("_at", "_bounds", "_cells", "_sum_at")

    def __init__(self, cells: "memoryview[float]", at: int, bounds: Sequence[float]) -> None:
        self._cells = cells
        self._at = at
        self._bounds = bounds
        self._sum_at = at + len(bounds) + 1

    def observe(self, value: float) -> None:
        """Count `value` into its bucket."""
        self._cells[self._at + bisect_left(self._bounds, value)] += 1.0
        self._cells[self._sum_at] += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count each of `values` into its bucket."""
        cells, at, bounds = self._cells, self._at, self._bounds
        for value in values:
            cells[at + bisect_left(bounds, value)] += 1.0
        cells[self._sum_at] += sum(values)


class Spec(msgspec.Struct, frozen=True):
    """The declaration of a metric whose label values are all known in advance.

    Attributes:
        kind: counter, gauge or histogram.
        label: the names of its labels, separated by commas, or "" for none.
        values: the combinations of the labels' values, separated by commas, or ("",) without a label.
        bounds: a histogram's upper bucket bounds, ascending, without infinity.
        combine: how the values of all processes are combined.
        is_sparse: whether a series is exported only after its first count, because few combinations occur.
    """

    name: str
    kind: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    bounds: tuple[float, ...] = ()
    combine: Literal["sum", "max"] = "sum"
    is_sparse: bool = False

    @property
    def width(self) -> int:
        """The number of cells of one series: the buckets, the infinite bucket and the sum, or a single value."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


@dataclass(slots=True)
class SharedMetrics:
    """The shared memory map and its layout, with a slot for each process."""

    specs: tuple[Spec, ...]
    slots: int
    _offsets: dict[str, int] = field(init=False)
    _row: int = field(init=False)
    _cells: "memoryview[float]" = field(init=False)

    def __post_init__(self) -> None:
        self._offsets = {}
        at = 0
        for spec in self.specs:
            self._offsets[spec.name] = at
            at += spec.width * len(spec.values)
        self._row = at
        self._cells = memoryview(mmap.mmap(-1, max(1, at * self.slots) * _CELL)).cast("d")

    def series(self, slot: int, spec: Spec) -> Any:
        """Return the `Counter`, `Gauge` or `Histogram` of the process in `slot`, or a dict of them by label value."""
        start = slot * self._row + self._offsets[spec.name]
        made: dict[str, Counter | Gauge | Histogram] = {}
        for at, value in enumerate(spec.values):
            match spec.kind:
                case "counter":
                    made[value] = Counter(self._cells, start + at)
                case "gauge":
                    made[value] = Gauge(self._cells, start + at)
                case _:
                    made[value] = Histogram(self._cells, start + at * spec.width, spec.bounds)
        return made if spec.label else made[""]

    def clear_gauges(self, slot: int) -> None:
        """Set the summed gauges of `slot` to zero after its process has ended."""
        for spec in self.specs:
            if spec.kind == "gauge" and spec.combine == "sum":
                for index in range(len(spec.values)):
                    self._cells[slot * self._row + self._offsets[spec.name] + index] = 0.0

    def total(self, spec: Spec, index: int = 0) -> list[float]:
        """Return the cells of series number `index` of a metric, combined over all slots."""
        rows = [self.cells(spec, index, slot) for slot in range(self.slots)]
        combine = max if spec.combine == "max" else sum
        return [combine(cells) for cells in zip(*rows, strict=True)]

    def cells(self, spec: Spec, index: int, slot: int) -> list[float]:
        """Return the cells of series number `index` of a metric, of one slot."""
        start = slot * self._row + self._offsets[spec.name] + index * spec.width
        return list(self._cells[start : start + spec.width])
