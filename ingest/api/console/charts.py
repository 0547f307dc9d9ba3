"""Small line charts as SVG, without scripts or separate styles."""

from collections.abc import Sequence
from dataclasses import dataclass

_WIDTH, _HEIGHT = 300, 48
_FEWEST = 60


@dataclass(frozen=True, slots=True)
class Chart:
    """A line over time.

    Attributes:
        line: The points of the line, for the attribute `points`.
        area: The points of the area below it.
        width, height: The width and height of the drawing.
        highest: The value at its upper edge.
    """

    line: str
    area: str
    highest: float
    width: int = _WIDTH
    height: int = _HEIGHT


def chart_of(values: Sequence[float | None]) -> Chart | None:
    """Draw the values, the newest at the right edge. Few values do not fill the width. None without two known values."""
    known = [(at, value) for at, value in enumerate(values) if value is not None]
    if len(known) < 2:
        return None
    highest = max(1.0, *(value for _, value in known))
    step = _WIDTH / (max(_FEWEST, len(values)) - 1)
    left = _WIDTH - (len(values) - 1) * step
    points = [(left + at * step, _HEIGHT - 1 - (_HEIGHT - 3) * value / highest) for at, value in known]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    area = f"{points[0][0]:.1f},{_HEIGHT} {line} {points[-1][0]:.1f},{_HEIGHT}"
    return Chart(line, area, highest)
