"""Describes the options of the bench with real workers."""

from dataclasses import dataclass
from typing import Annotated, Literal

from ingest.lab.described import described

_SPARE = 1.3


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePlan:
    """One run. The described fields are options of `ingest bench adaptive --live`.

    Attributes:
        capacities: capacities of the API, in sequence.
        latency: minimum and maximum seconds for processing a request.
        concurrency: maximum of each process.
        adaptive: whether the limit adapts.
    """

    capacities: tuple[int, ...] = (400, 50, 400)
    latency: tuple[float, float] = (0.4, 0.6)
    concurrency: int = 250
    adaptive: bool = True
    seconds: Annotated[int, described(None, "With --live: seconds of each capacity.", ge=12)] = 25
    queue: Annotated[int, described(None, "With --live: requests that may wait at the API.", ge=0)] = 1_000
    processes: Annotated[int, described(None, "With --live: worker processes.", ge=1, le=64)] = 2
    client: Annotated[Literal["native", "aiohttp"], described(None, "With --live: the workers' HTTP client.")] = (
        "aiohttp"
    )

    @property
    def mean(self) -> float:
        """Mean seconds for processing a request."""
        return sum(self.latency) / 2

    def allowed(self, capacity: int) -> float:
        """Orders per second that the API can process."""
        return min(capacity, self.processes * self.concurrency) / self.mean

    def orders(self) -> int:
        """More than all phases can process."""
        return round(_SPARE * self.seconds * sum(map(self.allowed, self.capacities))) + 2_000
