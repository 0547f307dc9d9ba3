"""Metrics in shared memory, written by the processes of one command and read by /metrics.

They live in one anonymous shared memory map, created before the processes are forked, with one row for each process slot
and one cell (float64) for each time series. Each process writes only its own row, so there are no locks, and an increment
is one addition. The successor of a killed process continues from its counts, so counters never decrease.

A row begins with the metrics of the process. A section for each source follows, which begins with the name of the source.
A process takes the next free section for a source that was added while it runs, so rows may list sources in different
orders. Readers find a section by its name. Sections that no source has taken use no memory, because they are never written.

The multi-process mode of prometheus_client keeps a file for each process and metric instead. It does not support custom
collectors, and an observation costs ten times as much.
"""

import mmap
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from ingest.domain.errors import ConfigError
from ingest.domain.source_name import UNNAMED
from ingest.telemetry.series import Counter, Gauge, Histogram

__all__ = ["Counter", "Gauge", "Histogram", "SharedMetrics", "Spec"]

_CELL = 8
# The sources that may be added while the processes run. A section takes 2.5 KiB of memory in each process once it is used.
SPARE_SOURCES = 256
# A section begins with a cell for its state, and then the source's name, of at most 32 bytes.
_USED, _REMOVED = 1.0, 2.0
_NAME_CELLS = 4
_SECTION_HEAD = 1 + _NAME_CELLS


class Spec(msgspec.Struct, frozen=True):
    """The declaration of a metric whose label values are all known in advance.

    Attributes:
        kind: counter, gauge or histogram.
        label: the names of its labels, separated by commas, or "" for none.
        values: the combinations of the labels' values, separated by commas, or ("",) without a label.
        bounds: a histogram's upper bucket bounds, ascending, without infinity.
        combine: how the values of all processes are combined.
        by_source: whether each source has its own series, which the label `source` names before the other labels.
        from_start: whether its series are exported from the start, if it is no histogram.
    """

    name: str
    kind: str
    help: str
    label: str = ""
    values: tuple[str, ...] = ("",)
    bounds: tuple[float, ...] = ()
    combine: Literal["sum", "max"] = "sum"
    by_source: bool = False
    from_start: bool = True

    @property
    def width(self) -> int:
        """The number of cells of one series: the buckets, the infinite bucket and the sum, or a single value."""
        return len(self.bounds) + 2 if self.kind == "histogram" else 1

    @property
    def appears_later(self) -> bool:
        """Whether each series is exported after its first count or observation."""
        return self.kind == "histogram" or not self.from_start

    @property
    def labels(self) -> list[str]:
        """The names of all labels."""
        return [*(["source"] if self.by_source else []), *(self.label.split(",") if self.label else [])]


class SharedMetrics:
    """The shared memory map and its layout.

    Args:
        specs: the metrics.
        slots: the number of processes.
        sources: the names of the sources that exist when the processes start. Their series are exported from the start.
    """

    def __init__(self, specs: Sequence[Spec], slots: int, sources: Sequence[str] = (UNNAMED,)) -> None:
        self.specs = tuple(specs)
        self.slots = slots
        self._offsets: dict[str, int] = {}
        ends = {False: 0, True: _SECTION_HEAD}
        for spec in self.specs:
            self._offsets[spec.name] = ends[spec.by_source]
            ends[spec.by_source] += spec.width * len(spec.values)
        self._first_section, self._section = ends[False], ends[True]
        has_sections = any(spec.by_source for spec in self.specs)
        self._most_sources = len(sources) + SPARE_SOURCES if has_sections else 0
        self._row = self._first_section + self._most_sources * self._section
        memory = mmap.mmap(-1, max(1, self._row * slots) * _CELL)
        self._bytes = memoryview(memory)
        self._cells = self._bytes.cast("d")
        # The sections of each slot that this process has found, in the order of the row. A section never changes its source.
        self._found: list[dict[str, int]] = [{} for _ in range(slots)]
        for slot in range(slots if has_sections else 0):
            for source in sources:
                self._take_section(slot, source)

    def series(self, slot: int, spec: Spec, source: str = UNNAMED) -> Any:
        """Return the `Counter`, `Gauge` or `Histogram` of the process in `slot`, or a dict of them by label value.

        A metric without the label `source` ignores the source. With the label, the source is exported from now on. Only the
        process itself may add one after the start.

        Raises:
            ConfigError: no further source can be added.
        """
        if spec.by_source:
            self._take_section(slot, source)
        start = self._start(spec, slot, source)
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

    def sources(self) -> list[str]:
        """Return the names of all sources that any process has."""
        return list(
            dict.fromkeys(
                source
                for slot in range(self.slots)
                # A copy, because another thread may find further sections.
                for source, at in list(self._sections(slot).items())
                if self._cells[at] == _USED
            )
        )

    def clear_gauges(self, slot: int) -> None:
        """Set the summed gauges of `slot` to zero after its process has ended."""
        self._clear(slot, [spec for spec in self.specs if not spec.by_source], UNNAMED)
        for source in self._sections(slot):
            self.clear_source(slot, source)

    def clear_source(self, slot: int, source: str) -> None:
        """Set the summed gauges of one source in `slot` to zero, after its worker has ended."""
        if source in self._sections(slot):
            self._clear(slot, [spec for spec in self.specs if spec.by_source], source)

    def remove_source(self, slot: int, source: str) -> None:
        """Stop exporting a source that the process in `slot` does not run anymore. Its counters continue if it returns."""
        if source in self._sections(slot):
            self.clear_source(slot, source)
            self._cells[self._found[slot][source]] = _REMOVED

    def total(self, spec: Spec, index: int = 0, source: str = UNNAMED) -> list[float]:
        """Return the cells of series number `index` of a metric, combined over all slots."""
        rows = [self.cells(spec, index, slot, source) for slot in range(self.slots)]
        combine = max if spec.combine == "max" else sum
        return [combine(cells) for cells in zip(*rows, strict=True)]

    def cells(self, spec: Spec, index: int, slot: int, source: str = UNNAMED) -> list[float]:
        """Return the cells of series number `index` of a metric, of one slot: zeros for a source that the slot does not have."""
        if spec.by_source and source not in self._sections(slot):
            return [0.0] * spec.width
        start = self._start(spec, slot, source) + index * spec.width
        return list(self._cells[start : start + spec.width])

    def _start(self, spec: Spec, slot: int, source: str) -> int:
        """Return the first cell of a metric."""
        begin = self._found[slot][source] if spec.by_source else slot * self._row
        return begin + self._offsets[spec.name]

    def _clear(self, slot: int, specs: Sequence[Spec], source: str) -> None:
        for spec in specs:
            if spec.kind == "gauge" and spec.combine == "sum":
                start = self._start(spec, slot, source)
                for at in range(start, start + len(spec.values)):
                    self._cells[at] = 0.0

    def _sections(self, slot: int) -> dict[str, int]:
        """Return the sections of a slot by source, including those that its process has taken since."""
        found = self._found[slot]
        while len(found) < self._most_sources and self._cells[at := self._section_at(slot, len(found))]:
            name = self._bytes[(at + 1) * _CELL : (at + _SECTION_HEAD) * _CELL].tobytes()
            found[name.rstrip(b"\0").decode()] = at
        return found

    def _take_section(self, slot: int, source: str) -> None:
        found = self._sections(slot)
        if source in found:
            self._cells[found[source]] = _USED
            return
        if len(found) == self._most_sources:
            raise ConfigError(f"no further source can be added to {self._most_sources} without a restart")
        at = self._section_at(slot, len(found))
        name = source.encode().ljust(_NAME_CELLS * _CELL, b"\0")
        self._bytes[(at + 1) * _CELL : (at + _SECTION_HEAD) * _CELL] = name
        # Last, because readers look at the name from then on. A process that is killed before has taken no section.
        self._cells[at] = _USED
        found[source] = at

    def _section_at(self, slot: int, index: int) -> int:
        return slot * self._row + self._first_section + index * self._section
