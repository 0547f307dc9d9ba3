"""Adds up the demands of several sources for a capacity plan, and shares the planned slots among them."""

import math
from collections.abc import Collection
from dataclasses import dataclass

from ingest.domain.capacity.capacity_plan import slots_for, timeout_for


@dataclass(frozen=True, slots=True)
class SourceDemand:
    """The required rate of one source.

    Attributes:
        rate: orders per second.
        latency: mean latency of its external API, in seconds.
    """

    rate: float
    latency: float


def total_of(sources: Collection[SourceDemand]) -> SourceDemand:
    """Return the sum of the rates, with the mean latency of all orders.

    The number of orders in flight is then the sum over the sources, by Little's law.
    """
    rate = sum(source.rate for source in sources)
    return SourceDemand(rate, sum(source.rate * source.latency for source in sources) / rate)


@dataclass(frozen=True, slots=True)
class SourceShare:
    """The settings of one source.

    Attributes:
        concurrency: orders in flight in each process.
        timeout: seconds for a request.
    """

    concurrency: int
    timeout: float


def share_of(source: SourceDemand, processes: int) -> SourceShare:
    """Return the settings of a source, when this number of processes runs all sources."""
    slots = slots_for(source.rate, source.latency)
    return SourceShare(math.ceil(slots / processes), timeout_for(source.latency))
