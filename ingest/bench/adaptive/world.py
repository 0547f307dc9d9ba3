"""Simulates, in virtual time, an external API and a client that always has another order."""

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from itertools import count
from random import Random

from ingest.lab.bucket import Bucket
from ingest.lab.upstream.limits.capacity import Capacity

# A rejection does not need processing.
_REFUSAL = 0.002
# After a 503, a worker tries again within the slot. After a 429, it waits for the time in Retry-After.
_RETRY = 0.1
_TOLD = 1.0


class End(Enum):
    """The result of an attempt."""

    DOCUMENT = "document"
    OVERLOADED = "503"
    THROTTLED = "429"


class Limit:
    """A limit to compare, which by default ignores the results of attempts.

    Attributes:
        value: the maximum number of attempts in flight.
    """

    value: int

    def start(self, now: float) -> None:
        """Record the beginning of an attempt."""

    def end(self, started_at: float, now: float, end: End) -> None:
        """Record the end of an attempt."""

    def pause(self, now: float) -> float:  # noqa: ARG002  for limits that pause
        """Seconds until an attempt may begin."""
        return 0.0


@dataclass(slots=True)
class Clock:
    """Virtual time, in seconds."""

    now: float = 0.0

    def __call__(self) -> float:
        """Now."""
        return self.now


@dataclass(frozen=True, slots=True)
class Phase:
    """The state of the API for some time.

    Attributes:
        seconds: duration.
        capacity: requests processed concurrently.
        latency: mean seconds for processing a request.
        rate: requests per second above which the response is 429, or 0 for no limit.
    """

    seconds: float
    capacity: int
    latency: float
    rate: float = 0.0


@dataclass(slots=True)
class Second:
    """The results of one second of a run."""

    documents: int = 0
    rejected: int = 0
    waited: float = 0.0
    limit: int = 0


@dataclass
class World:
    """One run of an API with its phases and a client with a limit."""

    phases: Sequence[Phase]
    queue: int
    spread: float
    random: Random
    limit: Callable[[Clock], Limit]
    clock: Clock = field(default_factory=Clock)
    seconds: list[Second] = field(default_factory=list)
    _events: list[tuple[float, int, Callable[[], None]]] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)
    _taken: int = 0
    _asks_at: float = 0.0

    def run(self) -> list[Second]:
        """Run all phases, and return the results of each second."""
        self._client = self.limit(self.clock)
        self._capacity = Capacity(queue=self.queue)
        at = 0.0
        for phase in self.phases:
            self._at(at, partial(self._enter, phase))
            at += phase.seconds
        self.seconds = [Second() for _ in range(round(at))]
        for number in range(len(self.seconds)):
            self._at(float(number), partial(self._note, number))
        self._at(0.0, self._ask)
        while self._events and self._events[0][0] < at:
            self.clock.now, _, happens = heapq.heappop(self._events)
            happens()
        return self.seconds

    def _at(self, time: float, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._numbers), happens))

    def _enter(self, phase: Phase) -> None:
        self._phase = phase
        self._capacity.capacity = phase.capacity
        self._bucket = Bucket(phase.rate, phase.rate / 10, self.clock) if phase.rate else None

    def _note(self, number: int) -> None:
        self.seconds[number].limit = self._client.value

    def _ask(self) -> None:
        """Begin the attempts that the limit allows."""
        while self._taken < self._client.value:
            if (pause := self._client.pause(self.clock.now)) > 0:
                if self._asks_at <= self.clock.now:
                    self._asks_at = self.clock.now + pause
                    self._at(self._asks_at, self._ask)
                return
            self._taken += 1
            self._attempt()

    def _attempt(self) -> None:
        now = self.clock.now
        self._client.start(now)
        end, seconds = self._answer(now)
        self._at(now + seconds, partial(self._end, now, end, seconds))

    def _answer(self, now: float) -> tuple[End, float]:
        if self._bucket is not None and not self._bucket.take():
            return End.THROTTLED, _REFUSAL
        processing = self._phase.latency * self.random.lognormvariate(-(self.spread**2) / 2, self.spread)
        seconds = self._capacity.take(now, processing)
        return (End.OVERLOADED, _REFUSAL) if seconds is None else (End.DOCUMENT, seconds)

    def _end(self, started_at: float, end: End, seconds: float) -> None:
        now = self.clock.now
        self._client.end(started_at, now, end)
        second = self.seconds[int(now)]
        if end is End.DOCUMENT:
            second.documents += 1
            second.waited += seconds
        else:
            second.rejected += 1
        if end is End.OVERLOADED:
            self._at(now + self.random.uniform(0.0, _RETRY), self._attempt)
        elif end is End.THROTTLED and self._client.pause(now) <= 0:
            self._at(now + _TOLD, self._release)
        else:
            self._release()

    def _release(self) -> None:
        self._taken -= 1
        self._ask()
