"""Formats numbers, ages and times for narrow columns."""

from typing import TYPE_CHECKING

from ingest.cli.terminal.times import format_duration

if TYPE_CHECKING:
    from datetime import datetime


def format_clock(moment: "datetime", precision: str = ".3") -> str:
    """The time of day, to the millisecond or to the second."""
    text = f"{moment:%H:%M:%S}"
    return f"{text}.{moment.microsecond // 1000:03}" if precision else text


def number(value: int | None) -> str:
    """A number in at most six characters."""
    if value is None:
        return "?"
    for unit, size in (("G", 10**9), ("M", 10**6), ("k", 10**3)):
        if value >= size and value >= 100_000:
            return f"{value / size:.{0 if value >= 100 * size else 1}f}{unit}"
    return f"{value:,}"


def rate(value: float | None) -> str:
    """A number per second."""
    if value is None:
        return "-"
    return f"{value:.1f}" if 0 < value < 10 else number(round(value))


def age(value: float | None) -> str:
    """How old the oldest order is."""
    return "-" if value is None else format_duration(value, ".0f")


def seconds(value: float | None) -> str:
    """A latency."""
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else format_duration(value)
