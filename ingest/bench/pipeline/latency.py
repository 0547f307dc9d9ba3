"""Computes mean and quantiles of the external API's configured latency, and quantiles of measurements."""

import math
from collections.abc import Sequence
from random import Random
from statistics import NormalDist

from ingest.lab.upstream.behaviour import parse_latency


def mean_of(latency: str) -> float:
    """The mean in seconds of a latency in the format of `ingest upstream`."""
    median, sigma = _lognormal(latency)
    if sigma is not None:
        return median * math.exp(sigma**2 / 2)
    low, high = _bounds(latency)
    return (low + high) / 2


def quantile_of(latency: str, share: float) -> float:
    """A quantile of the latency in seconds."""
    median, sigma = _lognormal(latency)
    if sigma is not None:
        return median * math.exp(sigma * NormalDist().inv_cdf(share))
    low, high = _bounds(latency)
    return low + (high - low) * share


def check_latency(latency: str) -> None:
    """Check the format.

    Raises:
        ValueError: the text does not have one of the three forms.
    """
    draw = parse_latency(latency)
    if draw is not None:
        draw(Random(0))


def quantile(sorted_values: Sequence[float], share: float) -> float | None:
    """A quantile of sorted values, interpolated between neighbours, or None without values."""
    if not sorted_values:
        return None
    position = share * (len(sorted_values) - 1)
    below = int(position)
    above = min(below + 1, len(sorted_values) - 1)
    return sorted_values[below] + (sorted_values[above] - sorted_values[below]) * (position - below)


def _lognormal(latency: str) -> tuple[float, float | None]:
    if not latency.startswith("lognormal:"):
        return 0.0, None
    median, _, sigma = latency.removeprefix("lognormal:").partition(",")
    return float(median), float(sigma)


def _bounds(latency: str) -> tuple[float, float]:
    low, dash, high = latency.partition("-")
    return float(low), float(high) if dash else float(low)
