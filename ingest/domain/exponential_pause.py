"""The pause before the next try, which grows with each failure."""

_MOST_STEPS = 60
"""Bounds the exponent, because 2.0 ** 2000 overflows. Every pause is the longest one before."""


def exponential_pause(first: float, longest: float, failures: int, growth: float = 2.0) -> float:
    """Return seconds: `first` without earlier failures, and `growth` times as long after each, at most `longest`."""
    return min(longest, first * growth ** min(max(0, failures), _MOST_STEPS))
