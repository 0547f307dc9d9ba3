"""Between which times a process assumes the queue's clock to be."""

from collections.abc import Callable

ClockBounds = Callable[[], tuple[float, float] | None]
"""Returns the earliest and the latest time now, in Unix seconds, or None before the time is known."""


def unknown_time() -> None:
    """The bounds of a process that does not know the time."""
