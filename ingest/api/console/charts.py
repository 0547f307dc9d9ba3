"""Small bar charts of a history as SVG, without scripts or separate styles, each with its text."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ingest.api.console.templating import duration, number
from ingest.operations.state.history import BARS, Bar

_STEP, _HEIGHT = 4, 30


@dataclass(frozen=True, slots=True)
class Chart:
    """The bars of a history, the newest at the right edge.

    Attributes:
        bars: the path of the known bars.
        unknown: the path of a mark for each unknown bar.
        text: describes the chart to readers who do not see it.
        total: the sum of the known bars. None without one.
        width, height: of the drawing.
    """

    bars: str
    unknown: str
    text: str
    total: int | None
    width: int = BARS * _STEP
    height: int = _HEIGHT


def charts_of(bars: Sequence[Bar], hours: int, at: datetime) -> dict[str, Chart]:
    """Draw each number of the bars of these hours before a moment."""

    def chart(name: str, shown: Callable[[float | None], Any] = number) -> Chart:
        return _chart([getattr(bar, name) for bar in bars], hours, at, shown)

    return {
        "arrived": chart("arrived"),
        "stored": chart("stored"),
        "failed": chart("failed"),
        "oldest": chart("oldest", duration),
    }


def _chart(values: Sequence[int | None], hours: int, at: datetime, shown: Callable[[float | None], Any]) -> Chart:
    known = [value for value in values if value is not None]
    highest = max(known, default=0)
    heights = [0 if not value else max(1.5, _HEIGHT * value / highest) for value in values]
    bars = "".join(_rectangle(n, height) for n, height in enumerate(heights) if height)
    unknown = "".join(_rectangle(n, 1) for n, value in enumerate(values) if value is None)
    width = f"{hours} minutes" if hours > 1 else "a minute"
    text = f"Highest in {width}: {shown(highest)}"
    if highest:
        newest = len(values) - 1 - values[::-1].index(highest)
        began_at = at - timedelta(minutes=hours * (len(values) - 1 - newest))
        text += f" at {began_at:%H:%M}"
    if len(known) < len(values):
        text += f". Unknown for {_minutes((len(values) - len(known)) * hours)}"
    return Chart(bars, unknown, f"{text}." if known else "Not known yet.", sum(known) if known else None)


def _minutes(minutes: int) -> str:
    return duration(60 * minutes) if minutes > 1 else "a minute"


def _rectangle(position: int, height: float) -> str:
    return f"M{position * _STEP} {_HEIGHT}v-{height:.1f}h{_STEP - 1}v{height:.1f}z"
