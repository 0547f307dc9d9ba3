"""Four scenarios for the simulated API, each with some minutes of virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from ingest.bench.adaptive.world import Phase

MOST = 300
"""The value of INGEST_CONCURRENCY in all scenarios."""
_LATENCY = 0.2


@dataclass(frozen=True, slots=True)
class Scenario:
    """One scenario.

    Attributes:
        name: display name.
        phases: the phases in sequence.
        queue: requests that can wait at the API. Further ones are rejected with a 503.
        spread: sigma of the lognormal distribution of a request's duration.
    """

    name: str
    phases: Sequence[Phase]
    queue: int = 1_000
    spread: float = 0.2


SCENARIOS = (
    Scenario("step", [Phase(60, 200, _LATENCY), Phase(60, 25, _LATENCY), Phase(60, 200, _LATENCY)]),
    Scenario(
        "step with rejections",
        [Phase(60, 200, _LATENCY), Phase(60, 25, _LATENCY), Phase(60, 200, _LATENCY)],
        queue=30,
    ),
    # Another client needs 75 % of the API for ten of every thirty seconds.
    Scenario("noisy neighbour", [*islice(cycle([Phase(20, 160, _LATENCY), Phase(10, 40, _LATENCY)]), 12)]),
    Scenario("429 wall", [Phase(60, 1_000, _LATENCY), Phase(120, 1_000, _LATENCY, rate=200)]),
    # The duration of a request grows from 0.1 to 0.3 s at the same capacity.
    Scenario("slow drift", [Phase(10, 100, 0.1 * 3 ** (number / 23)) for number in range(24)]),
)
