"""Declares charts as data, in rows of panels that `ingest.bench.chart` draws when a report is written.

Each colour has one meaning in all charts. Ours is blue, and its competitors are grey.
"""

from collections.abc import Sequence
from dataclasses import dataclass

OURS = "#1f5fa8"
OTHER = "#8a929c"
WARN = "#c8501e"
PALETTE = (OURS, "#e08a1e", "#3d8f5f", "#8a4fa3", WARN, OTHER)


@dataclass(frozen=True, slots=True)
class Series:
    """Values with one meaning, as bars or as the points of a line.

    Attributes:
        colour: one colour for all values, or one for each.
        marker: Matplotlib's name of the marker for the points of a line. Without a marker, the line is dashed.
        offsets: distance in points of each written value above its marker. Without offsets, values are not written.
    """

    label: str
    values: Sequence[float]
    colour: str | Sequence[str]
    marker: str = ""
    offsets: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Bars:
    """Horizontal bars from the top down, each with its value. Several series are stacked.

    Attributes:
        label: the axis title, with its unit.
        names: names of the bars, which the first panel of a row shows.
        digits: decimals of the shown values.
        ideal: value to mark with a line, or None.
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
    """Vertical bars in groups with a bar of each series, each with its value.

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
    """Lines over the values of an option, one of which can be marked.

    Attributes:
        label: the title of the vertical axis, with its unit.
        positions: positions of the values on the horizontal axis with their labels, most of which are empty for many.
        limits: limits of the vertical axis.
        is_log: whether the horizontal axis is logarithmic.
        marked: a marked position and its label.
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
        title: a sentence that describes the content.
        rows: rows of panels, all of the same length.
        size: width and height in inches.
        suffix: suffix of the file's name, after the bench's name.
        shares_rows: whether the panels of a row share their vertical axis.
        has_legend: whether there is a legend for the series of the first panel.
    """

    title: str
    rows: Sequence[Sequence[Panel]]
    size: tuple[float, float]
    suffix: str = ""
    shares_rows: bool = True
    has_legend: bool = False
