"""Describes what is compared, under which conditions, and how long that takes."""

from dataclasses import dataclass
from enum import StrEnum
from math import ceil

SERVICE_PROCESSES = 2
SERVICE_CONCURRENCY = 250

# Of one program on one core, roughly: what bounds those that wait for nothing.
_ROWS_PER_SECOND = 1000
_SECONDS_TO_START = 2.0


class Pattern(StrEnum):
    """A pattern, by the name that `--only` takes."""

    GATHER = "gather"
    SEMAPHORE = "semaphore"
    PROCESSES = "processes"
    THREADS = "threads"
    STREAMS = "streams"
    SERVICE = "service"


@dataclass(frozen=True, slots=True)
class Profile:
    """What is known of a pattern before it runs.

    Attributes:
        title: for people.
        in_flight: most orders at a time; None for all of them.
        published: the figures of a well-known comparison for 10,000 orders: seconds, peak memory in MB (1.2 GB counted as
            1,200 MB), percentage of failed orders; None for the service.
        why: what happens to the orders that were not stored when one of its processes was killed.
        survives: whether others go on when one of its processes is killed.
    """

    title: str
    in_flight: int | None
    published: tuple[float, float, float] | None
    why: str
    survives: bool = False


PROFILES = {
    Pattern.GATHER: Profile(
        "gather, no bound", None, (34.2, 1200, 0.2), "IDs and answers were in the memory of its only process"
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
        "what it had read stays pending: no worker asks for it again",
        survives=True,
    ),
    Pattern.SERVICE: Profile(
        f"ingest worker, {SERVICE_PROCESSES} x {SERVICE_CONCURRENCY}",
        SERVICE_PROCESSES * SERVICE_CONCURRENCY,
        None,
        "what it had read was pending, and is claimed",
        survives=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the bench.

    Attributes:
        orders: to fetch and store, by each pattern.
        latency: seconds until the simulated API answers.
        throttle: requests being answered above which it says 429; 0 for no limit.
        kill: whether each pattern runs a second time, and has a process killed half-way.
        patterns: those that run.
    """

    orders: int
    latency: float
    throttle: int
    kill: bool
    patterns: tuple[Pattern, ...]

    def ideal(self, pattern: Pattern) -> float:
        """Seconds that waiting for the API alone takes, with all that the pattern has in flight."""
        at_once = PROFILES[pattern].in_flight or self.orders
        return self.latency * ceil(self.orders / at_once)

    def expected(self, pattern: Pattern) -> float:
        """Seconds of one undisturbed run, roughly."""
        return _SECONDS_TO_START + self.ideal(pattern) + self.orders / _ROWS_PER_SECOND

    def expected_killed(self, pattern: Pattern) -> float:
        """Seconds of a run with a kill, roughly; one that ends with its process takes half."""
        return self.expected(pattern) * (1.0 if PROFILES[pattern].survives else 0.5)

    def expected_in_all(self) -> float:
        """Seconds of the whole bench, roughly."""
        kills = self.patterns if self.kill else ()
        return sum(map(self.expected, self.patterns)) + sum(map(self.expected_killed, kills))

    @property
    def api_options(self) -> list[str]:
        """Of `ingest upstream`."""
        limit = ["--concurrency-limit", str(self.throttle)] if self.throttle else []
        return ["--latency", str(self.latency), *limit]
