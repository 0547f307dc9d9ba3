"""An external API in virtual time, for the adaptive limit. It serves a limited number of requests, and others wait or fail."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from random import Random

from ingest.flow.pace.adaptive_limit import AdaptiveLimit
from ingest.lab.upstream.limits.capacity import Capacity

REFUSAL = 0.002
RETRY = 0.1


@dataclass
class Api:
    """An API with a backlog to work on, and the limits of the processes that send requests.

    Attributes:
        capacity: requests that it processes at a time.
        queue: requests that may wait.
        latency: mean seconds of processing a request.
        spread: sigma of its lognormal distribution.
        failing: share of the requests that it rejects, whatever its load.
    """

    most: int = 500
    processes: int = 1
    capacity: int = 100
    queue: int = 1_000
    latency: float = 0.2
    spread: float = 0.1
    failing: float = 0.0
    random: Random = field(default_factory=lambda: Random(1))
    now: float = 0.0
    documents: int = 0
    refused: int = 0
    waited: float = 0.0
    _events: "list[tuple[float, int, Callable[[], None]]]" = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.limits = [self.limit() for _ in range(self.processes)]
        self._served = Capacity()
        self._taken = dict.fromkeys(range(self.processes), 0)

    def limit(self) -> AdaptiveLimit:
        return AdaptiveLimit(self.most, clock=lambda: self.now, shared=lambda: self.now)

    @property
    def values(self) -> int:
        """All that may be in flight."""
        return sum(limit.value for limit in self.limits)

    @property
    def allowed(self) -> float:
        """Requests that it can process in a second."""
        return self.capacity / self.latency

    def run(self, seconds: float) -> float:
        """Let time pass, and return the used share of the API's capacity."""
        self._served.capacity, self._served.queue = self.capacity, self.queue
        self.documents = self.refused = 0
        self.waited = 0.0
        until = self.now + seconds
        for number in range(self.processes):
            self._at(self.now, partial(self._ask, number))
        while self._events and self._events[0][0] < until:
            self.now, _, happens = heapq.heappop(self._events)
            happens()
        self.now = until
        return self.documents / (self.allowed * seconds)

    def _at(self, time: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), happens))

    def _ask(self, number: int) -> None:
        while self._taken[number] < self.limits[number].value:
            self._taken[number] += 1
            self._attempt(number)

    def _attempt(self, number: int) -> None:
        self.limits[number].record_start()
        processing = self.latency * self.random.lognormvariate(-(self.spread**2) / 2, self.spread)
        seconds = None if self.random.random() < self.failing else self._served.take(self.now, processing)
        end = self._end_document if seconds is not None else self._end_refusal
        self._at(self.now + (seconds or REFUSAL), partial(end, number, self.now))

    def _end_document(self, number: int, started_at: float) -> None:
        self.documents += 1
        self.waited += self.now - started_at
        self.limits[number].record_document(started_at, self.now)
        self._taken[number] -= 1
        self._ask(number)

    def _end_refusal(self, number: int, started_at: float) -> None:
        """The slot is kept for another try."""
        self.refused += 1
        self.limits[number].record_overload(started_at)
        self._at(self.now + self.random.uniform(0, RETRY), partial(self._attempt, number))
