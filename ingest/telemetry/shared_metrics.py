"""The shared board: where the processes of one `ingest worker` count, and /metrics reads.

One anonymous shared memory map, made before the processes are forked; a row for each process slot, a
cell (float64) for each time series. A process writes its own row alone, so there are no locks, and an
increment is one addition. What a killed process counted stays on the board, and its successor in
the slot goes on from there: counters never go back.

prometheus_client's own multi-process mode keeps a file per process and metric instead; it has no custom
collectors, and an observation costs it an order of magnitude more than here.
"""

import mmap
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True, slots=True)
class Spec:
    """A metric as declared: all its label values are known beforehand.

    Attributes:
        kind: counter, gauge or histogram.
        label: the name of its one label, "" for none.
        values: the label's values; ("",) without a label.
        bounds: a histogram's upper bucket bounds, ascending, without infinity.
    """

    name: str
    kind: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    bounds: tuple[float, ...] = ()

    @property
    def width(self) -> int:
        """Cells of one series: its buckets, the infinite one and the sum, or the one value."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


@dataclass(slots=True)
class SharedMetrics:
    """The shared memory with its layout.

    Args:
        specs: what is counted.
        slots: rows, one for each process.
    """

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

    def row(self, slot: int) -> "Row":
        """The row that the process in `slot` writes."""
        start = slot * self._row
        return Row(self, self._cells[start : start + self._row])

    def clear_gauges(self, slot: int) -> None:
        """Zero what the process in `slot` no longer holds, now that it is gone."""
        for spec in self.specs:
            if spec.kind == "gauge":
                for index in range(len(spec.values)):
                    self._cells[slot * self._row + self._offsets[spec.name] + index] = 0.0

    def total(self, name: str, index: int) -> list[float]:
        """The cells of a metric's series number `index`, added over all slots."""
        rows = [self.cells(name, index, slot) for slot in range(self.slots)]
        return [sum(cells) for cells in zip(*rows, strict=True)]

    def cells(self, name: str, index: int, slot: int) -> list[float]:
        """The cells of a metric's series number `index`, of one slot."""
        spec = next(spec for spec in self.specs if spec.name == name)
        start = slot * self._row + self._offsets[name] + index * spec.width
        return list(self._cells[start : start + spec.width])

    def offset(self, name: str) -> int:
        """Where a metric's first cell is within a row."""
        return self._offsets[name]


@dataclass(frozen=True, slots=True)
class Row:
    """One process's part of the board; hands out its series."""

    shared_metrics: SharedMetrics
    cells: "memoryview[float]"

    def counter(self, spec: Spec) -> dict[str, Counter]:
        """The counters of a metric by label value."""
        at = self.shared_metrics.offset(spec.name)
        return {value: Counter(self.cells, at + index) for index, value in enumerate(spec.values)}

    def gauge(self, spec: Spec) -> Gauge:
        """The gauge of a metric without labels."""
        return Gauge(self.cells, self.shared_metrics.offset(spec.name))

    def histogram(self, spec: Spec) -> dict[str, Histogram]:
        """The histograms of a metric by label value."""
        at = self.shared_metrics.offset(spec.name)
        return {
            value: Histogram(self.cells, at + index * spec.width, spec.bounds)
            for index, value in enumerate(spec.values)
        }
