"""The series of one process in shared memory, see `ingest.telemetry.shared_metrics`."""

from bisect import bisect_left
from collections.abc import Sequence


class _Series:
    """One series of one process."""

    __slots__ = ("_at", "_cells")

    def __init__(self, cells: "memoryview[float]", at: int) -> None:
        self._cells = cells
        self._at = at

    @property
    def value(self) -> float:
        """The value of this process."""
        return self._cells[self._at]


class Counter(_Series):
    """One counter series of one process."""

    __slots__ = ()

    def inc(self, by: float = 1.0) -> None:
        """Add `by`."""
        self._cells[self._at] += by


class Gauge(_Series):
    """One gauge series of one process."""

    __slots__ = ()

    def set(self, value: float) -> None:
        """Set to `value`."""
        self._cells[self._at] = value


class Histogram:
    """One histogram series of one process.

    Attributes:
        bounds: the upper bounds of its buckets, ascending, without infinity.
    """

    __slots__ = ("_at", "_cells", "_sum_at", "bounds")

    def __init__(self, cells: "memoryview[float]", at: int, bounds: Sequence[float]) -> None:
        self._cells = cells
        self._at = at
        self.bounds = bounds
        self._sum_at = at + len(bounds) + 1

    @property
    def buckets(self) -> list[float]:
        """How many values were counted in each bucket, and at the end in the infinite one."""
        return list(self._cells[self._at : self._sum_at])

    @property
    def sum(self) -> float:
        """The sum of all values."""
        return self._cells[self._sum_at]

    def observe(self, value: float) -> None:
        """Count `value` into its bucket."""
        self._cells[self._at + bisect_left(self.bounds, value)] += 1.0
        self._cells[self._sum_at] += value

    def observe_all(self, values: Sequence[float]) -> None:
        """Count each of `values` into its bucket."""
        cells, at, bounds = self._cells, self._at, self.bounds
        for value in values:
            cells[at + bisect_left(bounds, value)] += 1.0
        cells[self._sum_at] += sum(values)
