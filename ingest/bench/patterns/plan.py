"""Describes the compared patterns, the conditions and the expected duration."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil
from typing import Annotated

from ingest.lab.described import described

SERVICE_PROCESSES = 2
SERVICE_CONCURRENCY = 250

# Approximate orders per second of one program on one core, which limit patterns without waits.
_ROWS_PER_SECOND = 1000
_SECONDS_TO_START = 2.0


class Pattern(StrEnum):
    """A pattern by the name for `--only`."""

    GATHER = "gather"
    SEMAPHORE = "semaphore"
    PROCESSES = "processes"
    THREADS = "threads"
    STREAMS = "streams"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Profile:
    """The properties of a pattern.

    Attributes:
        title: display name.
        in_flight: maximum number of orders in flight, or None for all of them.
        published: seconds, peak memory in MB (1.2 GB counted as 1,200 MB) and percentage of failed orders in a
            well-known comparison with 10,000 orders, or None for the service.
        why: what happens to the remaining orders after one of its processes was killed.
        survives: whether other processes continue after one was killed.
    """

    title: str
    in_flight: int | None
    published: tuple[float, float, float] | None
    why: str
    survives: bool = False


PROFILES = {
    Pattern.GATHER: Profile(
        "gather, no bound", None, (34.2, 1200, 0.2), "IDs and responses were in the memory of its only process"
    ),
    Pattern.SEMAPHORE: Profile(
        "gather, semaphore of 100", 100, (52.8, 480, 0.0), "IDs were in the memory of its only process"
    ),
    Pattern.PROCESSES: Profile(
        "pool of 8 processes", 8, (48.5, 2800, 3.5), "the pool breaks (BrokenProcessPool), and the IDs go with it"
    ),
    Pattern.THREADS: Profile(
        "100 threads, queue.Queue", 100, (44.1, 680, 1.2), "IDs were in the memory of its only process"
    ),
    Pattern.STREAMS: Profile(
        "naive Redis Streams, 4 x 5",
        20,
        (28.4, 520, 0.02),
        "entries that it had read stay pending, and no worker claims them",
        survives=True,
    ),
    Pattern.SERVICE: Profile(
        f"ingest worker, {SERVICE_PROCESSES} x {SERVICE_CONCURRENCY}",
        SERVICE_PROCESSES * SERVICE_CONCURRENCY,
        None,
        "entries that it had read were pending, and are claimed",
        survives=True,
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One run. The described fields are options of `ingest bench patterns`, and `patterns` are the patterns to run."""

    patterns: tuple[Pattern, ...] = tuple(Pattern)
    orders: Annotated[int, described(None, "Orders for each pattern.", ge=1, le=100_000)] = 10_000
    latency: Annotated[float, described(None, "Seconds until the simulated API responds.", ge=0, le=60)] = 0.3
    throttle: Annotated[
        int,
        described(None, "Concurrent requests above which the API responds with 429. 0 for no limit.", ge=0),
    ] = 0
    kill: Annotated[
        bool, described(None, "Run each again, with a process killed half-way.", names=("--kill/--no-kill",))
    ] = True

    def ideal(self, pattern: Pattern) -> float:
        """Seconds of waiting for the API with the pattern's maximum in flight."""
        at_once = PROFILES[pattern].in_flight or self.orders
        return self.latency * ceil(self.orders / at_once)

    def expected(self, pattern: Pattern) -> float:
        """Approximate seconds of one undisturbed run."""
        return _SECONDS_TO_START + self.ideal(pattern) + self.orders / _ROWS_PER_SECOND

    def expected_killed(self, pattern: Pattern) -> float:
        """Approximate seconds of a run with a kill, which is half of it for a program that ends with its process."""
        return self.expected(pattern) * (1.0 if PROFILES[pattern].survives else 0.5)

    def expected_in_all(self) -> float:
        """Approximate seconds of the whole bench."""
        kills = self.patterns if self.kill else ()
        return sum(map(self.expected, self.patterns)) + sum(map(self.expected_killed, kills))

    @property
    def api_options(self) -> list[str]:
        """The options of `ingest upstream`."""
        limit = ["--concurrency-limit", str(self.throttle)] if self.throttle else []
        return ["--latency", str(self.latency), *limit]
