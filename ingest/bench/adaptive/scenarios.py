"""What happens to the simulated API: four scenarios, each for some minutes of virtual time."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle, islice

from ingest.bench.adaptive.world import Phase

MOST = 300
"""What INGEST_CONCURRENCY would be set to in all of them."""
_LATENCY = 0.2


@dataclass(frozen=True, slots=True)
class Scenario:
    """One of them.

    Attributes:
        name: for people.
        phases: one after the other.
        queue: requests that may wait at the API; more are refused with a 503.
        spread: sigma of the lognormal distribution of the time that a request takes.
    """

    name: str
    phases: Sequence[Phase]
    queue: int = 1_000
    spread: float = 0.2


SCENARIOS = (
    Scenario("step", [Phase(60, 200, _LATENCY), Phase(60, 25, _LATENCY), Phase(60, 200, _LATENCY)]),
    Scenario(
        "step with refusals",
        [Phase(60, 200, _LATENCY), Phase(60, 25, _LATENCY), Phase(60, 200, _LATENCY)],
        queue=30,
    ),
    # Somebody else needs three quarters of the API for ten seconds out of thirty.
    Scenario("noisy neighbour", [*islice(cycle([Phase(20, 160, _LATENCY), Phase(10, 40, _LATENCY)]), 12)]),
    Scenario("429 wall", [Phase(60, 1_000, _LATENCY), Phase(120, 1_000, _LATENCY, rate=200)]),
    # Each request takes longer and longer by itself: from 0.1 to 0.3 s, at the same capacity.
    Scenario("slow drift", [Phase(10, 100, 0.1 * 3 ** (number / 23)) for number in range(24)]),
)
