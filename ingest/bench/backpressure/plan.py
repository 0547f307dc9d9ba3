"""Describes the options of the bench."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from ingest.bench.backpressure.calls import Latency
from ingest.bench.backpressure.ways import WAYS
from ingest.lab.described import described

# Approximate seconds that a process needs in addition to its calls.
_START = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run with several ranges of latencies. The described fields are options of `ingest bench backpressure`."""

    latencies: Sequence[Latency] = (Latency(100, 200), Latency(100, 110))
    calls: Annotated[int, described(None, "Calls to make in each way.", ge=1, le=10_000_000)] = 100_000
    limit: Annotated[int, described(None, "Calls in flight, at most.", ge=1, le=100_000)] = 500
    seed: Annotated[int, described(None, "Seed of the latencies, which are the same for every way.")] = 1

    def expected_seconds(self) -> float:
        """Approximate seconds of the whole bench with the limit always used up."""
        ideal = [self.calls * (latency.low + latency.high) / 2000 / self.limit for latency in self.latencies]
        return 2 * len(WAYS) * sum(1.1 * seconds + _START for seconds in ideal)
