"""Declares charts as data: rows of panels, drawn by `ingest.bench.chart` when a report is written.

A colour has one meaning throughout: ours is blue, what it is compared with is grey.
"""

from collections.abc import Sequence
from dataclasses import dataclass

OURS = "#1f5fa8"
OTHER = "#8a929c"
WARN = "#c8501e"
PALETTE = (OURS, "#e08a1e", "#3d8f5f", "#8a4fa3", WARN, OTHER)


@dataclass(frozen=True, slots=True)
class Series:
    """Values of one meaning: bars, or the points of a line.

    Attributes:
        colour: of all values, or of each.
        marker: of the points of a line, as Matplotlib names it; without one the line is dashed.
        offsets: points by which each value is written above its marker; without them values are not written.
    """

    label: str
    values: Sequence[float]
    colour: str | Sequence[str]
    marker: str = ""
    offsets: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars from the top down, each with its value; several series are stacked.

    Attributes:
        label: the axis title, with its unit.
        names: what each bar is; shown in the first panel of a row.
        digits: of the values shown.
        ideal: marked with a line; None for nothing.
        is_log: whether the scale is logarithmic.
    """

    label: str
    names: Sequence[str]
    series: Sequence[Series]
    heading: str = ""
    digits: int = 0
    ideal: float | None = None
    is_log: bool = False


@dataclass(frozen=True, slots=True)
class GroupedBars:
    """Vertical bars in groups, a bar of each series in each, with its value.

    Attributes:
        label: the title of the vertical axis, with its unit.
        groups: names below the groups.
        below: the title of the horizontal axis.
    """

    label: str
    groups: Sequence[str]
    series: Sequence[Series]
    heading: str = ""
    below: str = ""


@dataclass(frozen=True, slots=True)
class Lines:
    """Lines over the values of an option, one of which may be marked.

    Attributes:
        label: the title of the vertical axis, with its unit.
        positions: of the values on the horizontal axis, and what is written there; nothing for most of many.
        limits: of the vertical axis.
        is_log: whether the horizontal axis is logarithmic.
        marked: a position and what is written there.
    """

    label: str
    positions: Sequence[tuple[float, str]]
    series: Sequence[Series]
    limits: tuple[float, float]
    below: str = ""
    is_log: bool = False
    marked: tuple[float, str] | None = None


Panel = Bars | GroupedBars | Lines


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture.

    Attributes:
        title: a sentence that says what it shows.
        rows: of panels; all rows have the same number.
        size: inches.
        suffix: of the file's name, after the bench's.
        shares_rows: whether the panels of a row have their vertical axis in common.
        has_legend: whether the series of the first panel are explained below.
    """

    title: str
    rows: Sequence[Sequence[Panel]]
    size: tuple[float, float]
    suffix: str = ""
    shares_rows: bool = True
    has_legend: bool = False
