"""Draws the times of all faults from a seed, in pure code.

Faults are divided into independent lanes, so that faults of different lanes overlap. A lane deals its kinds like cards.
Each kind occurs once before any kind occurs again, in a random order each time. Therefore, the same seed gives the same
plan, a short run contains every kind, and a long run contains its share of each.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import chain, count
from random import Random

from crash.power import POWERED

from chaos.disk import CAN_FILL

LAST_RELEASE = "last-release"
"""The feature that workers of the last release take part in."""
SHORT_RUN = 120.0
# The last faults are lifted this long before the end, so that the run is seen at work once more.
_QUIET = 2.0


class RedisKind(StrEnum):
    """How Redis runs."""

    STANDALONE = "standalone"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


class Kind(StrEnum):
    """The kinds of faults. The value is the description."""

    KILL_PROCESS = "kill -9 a worker process"
    KILL_COMMAND = "kill -9 a worker command, supervisor and all"
    KILL_SUPERVISOR = "kill -9 a supervisor alone"
    REPLACE_COMMAND = "SIGTERM a worker command, and start another"
    LAST_RELEASE = "replace a worker command by the last release for a while"
    FREEZE_PROCESS = "freeze a worker process beyond its lease"
    WORKER_CLOCK = "the clock of a worker command is wrong"
    REDIS_TERM = "restart Redis by SIGTERM"
    REDIS_KILL = "restart Redis by SIGKILL"
    REDIS_POWER = "power failure of Redis, which loses its unsynced data"
    REDIS_FULL = "the disk of Redis is full"
    REDIS_CLOCK = "the clock of Redis is wrong"
    REDIS_STALL = "stall Redis"
    REDIS_CUT = "cut connections to Redis"
    REDIS_HALF_OPEN = "half-open connections to Redis"
    REDIS_SLOW = "a slow network to Redis"
    REDIS_FAILOVER = "fail Redis over to its replica"
    REDIS_DEMOTED = "make Redis a replica for a while"
    REDIS_REPLACED = "kill -9 a primary until its replica is promoted"
    REDIS_SENTINEL = "kill -9 a Sentinel"
    REDIS_MIGRATION = "move slots to another primary"
    REDIS_NODE = "add a primary with slots, and remove it"
    REDIS_ROLLING = "restart all Redis servers, one after the other"
    POSTGRES_FAST = "restart PostgreSQL, fast"
    POSTGRES_IMMEDIATE = "restart PostgreSQL, immediate"
    POSTGRES_FULL = "the disk of PostgreSQL is full"
    POSTGRES_STALL = "stall PostgreSQL"
    POSTGRES_CUT = "cut connections to PostgreSQL"
    POSTGRES_HALF_OPEN = "half-open connections to PostgreSQL"
    POSTGRES_SLOW = "a slow network to PostgreSQL"
    API_REFUSES = "the API refuses connections"
    API_500 = "the API answers 500"
    API_503 = "the API answers 503"
    API_401 = "the API answers 401"
    API_404 = "the API answers 404 for each order"
    API_PAGE = "the API answers 200 with a login page"
    API_PLAUSIBLE = "the API sends each order a response that looks like its own"
    API_HANGS = "the API hangs"
    API_THROTTLES = "the API throttles with 429"
    API_CUT = "cut connections to the API"
    API_HALF_OPEN = "half-open connections to the API"
    API_SLOW = "a slow network to the API"
    FOREIGN_DELETION = "XGROUP DELCONSUMER of a live consumer"
    FOREIGN_WIDE = "entries of thousands of fields"
    FOREIGN_COMMANDS = "XTRIM and DEL of other keys, CONFIG SET, SCRIPT FLUSH, CLIENT KILL"


# Minimum and maximum duration of each fault in seconds. For a restart, this is the downtime.
SECONDS = {
    Kind.KILL_PROCESS: (0.0, 0.0),
    Kind.KILL_COMMAND: (0.5, 3.0),
    Kind.KILL_SUPERVISOR: (0.0, 0.0),
    Kind.REPLACE_COMMAND: (0.0, 0.0),
    Kind.LAST_RELEASE: (4.0, 40.0),
    Kind.FREEZE_PROCESS: (8.0, 15.0),
    Kind.WORKER_CLOCK: (2.0, 30.0),
    Kind.REDIS_TERM: (0.2, 3.0),
    Kind.REDIS_KILL: (0.2, 3.0),
    Kind.REDIS_POWER: (0.2, 3.0),
    Kind.REDIS_FULL: (1.0, 8.0),
    Kind.REDIS_CLOCK: (1.0, 20.0),
    Kind.REDIS_STALL: (2.0, 8.0),
    Kind.REDIS_CUT: (0.0, 0.0),
    Kind.REDIS_HALF_OPEN: (3.0, 12.0),
    Kind.REDIS_SLOW: (2.0, 10.0),
    Kind.REDIS_FAILOVER: (0.0, 0.0),
    Kind.REDIS_DEMOTED: (1.0, 5.0),
    Kind.REDIS_REPLACED: (1.0, 5.0),
    Kind.REDIS_SENTINEL: (2.0, 8.0),
    Kind.REDIS_MIGRATION: (0.0, 0.0),
    Kind.REDIS_NODE: (2.0, 8.0),
    Kind.REDIS_ROLLING: (0.2, 0.5),
    Kind.POSTGRES_FAST: (0.2, 3.0),
    Kind.POSTGRES_IMMEDIATE: (0.2, 3.0),
    Kind.POSTGRES_FULL: (3.0, 12.0),
    Kind.POSTGRES_STALL: (2.0, 8.0),
    Kind.POSTGRES_CUT: (0.0, 0.0),
    Kind.POSTGRES_HALF_OPEN: (3.0, 12.0),
    Kind.POSTGRES_SLOW: (2.0, 10.0),
    Kind.API_REFUSES: (3.0, 40.0),
    Kind.API_500: (3.0, 60.0),
    Kind.API_503: (3.0, 40.0),
    Kind.API_401: (3.0, 20.0),
    Kind.API_404: (2.0, 40.0),
    Kind.API_PAGE: (2.0, 40.0),
    Kind.API_PLAUSIBLE: (2.0, 40.0),
    Kind.API_HANGS: (4.0, 30.0),
    Kind.API_THROTTLES: (3.0, 15.0),
    Kind.API_CUT: (0.0, 0.0),
    Kind.API_HALF_OPEN: (3.0, 15.0),
    Kind.API_SLOW: (2.0, 15.0),
    Kind.FOREIGN_DELETION: (0.0, 0.0),
    Kind.FOREIGN_WIDE: (0.0, 0.0),
    Kind.FOREIGN_COMMANDS: (0.0, 0.0),
}


@dataclass(frozen=True, slots=True)
class Lane:
    """Kinds that never overlap each other.

    Attributes:
        gap: minimum and maximum seconds between two faults.
        short_gap: the same in a short run.
    """

    name: str
    kinds: tuple[Kind, ...]
    gap: tuple[float, float]
    short_gap: tuple[float, float]


def _kinds(prefix: str) -> tuple[Kind, ...]:
    return tuple(kind for kind in Kind if kind.name.startswith(prefix))


LANES = (
    Lane("processes", (Kind.KILL_PROCESS,), (10.0, 20.0), (5.0, 10.0)),
    Lane(
        "commands",
        (
            Kind.KILL_COMMAND,
            Kind.KILL_SUPERVISOR,
            Kind.REPLACE_COMMAND,
            Kind.LAST_RELEASE,
            Kind.FREEZE_PROCESS,
            Kind.WORKER_CLOCK,
        ),
        (8.0, 20.0),
        (2.0, 5.0),
    ),
    Lane("redis", _kinds("REDIS"), (5.0, 15.0), (1.5, 3.0)),
    Lane("postgres", _kinds("POSTGRES"), (5.0, 15.0), (2.0, 4.0)),
    Lane("api", _kinds("API"), (5.0, 15.0), (0.5, 1.2)),
    Lane("foreign clients", _kinds("FOREIGN"), (8.0, 20.0), (4.0, 8.0)),
)

GROUPS = {
    "worker kills": (Kind.KILL_PROCESS, Kind.KILL_COMMAND, Kind.KILL_SUPERVISOR),
    "worker freezes": (Kind.FREEZE_PROCESS,),
    "worker commands replaced": (Kind.REPLACE_COMMAND,),
    "mixed releases": (Kind.LAST_RELEASE,),
    "Redis restarts": (Kind.REDIS_TERM, Kind.REDIS_KILL),
    "power failures": (Kind.REDIS_POWER,),
    "full disks": (Kind.REDIS_FULL, Kind.POSTGRES_FULL),
    "wrong clocks": (Kind.REDIS_CLOCK, Kind.WORKER_CLOCK),
    "PostgreSQL restarts": (Kind.POSTGRES_FAST, Kind.POSTGRES_IMMEDIATE),
    "server stalls": (Kind.REDIS_STALL, Kind.POSTGRES_STALL),
    "API outages": (Kind.API_REFUSES, Kind.API_500, Kind.API_503, Kind.API_401, Kind.API_HANGS),
    "plausible responses": (Kind.API_404, Kind.API_PAGE, Kind.API_PLAUSIBLE),
    "API throttling": (Kind.API_THROTTLES,),
    "connections cut": (Kind.REDIS_CUT, Kind.POSTGRES_CUT, Kind.API_CUT),
    "connections half-open": (Kind.REDIS_HALF_OPEN, Kind.POSTGRES_HALF_OPEN, Kind.API_HALF_OPEN),
    "role changes": (Kind.REDIS_FAILOVER, Kind.REDIS_DEMOTED, Kind.REDIS_REPLACED),
    "Sentinels killed": (Kind.REDIS_SENTINEL,),
    "slots moved": (Kind.REDIS_MIGRATION, Kind.REDIS_NODE),
    "rolling restarts": (Kind.REDIS_ROLLING,),
    "consumers deleted": (Kind.FOREIGN_DELETION,),
    "wide entries": (Kind.FOREIGN_WIDE,),
    "foreign commands": (Kind.FOREIGN_COMMANDS,),
    "slow networks": (Kind.REDIS_SLOW, Kind.POSTGRES_SLOW, Kind.API_SLOW),
}
"""Groups of kinds that the report counts together. Every kind is in one group."""


_ONLY_WITH = {
    **{kind: set[RedisKind]() for kind in (Kind.REDIS_POWER, Kind.REDIS_CLOCK, Kind.WORKER_CLOCK) if not POWERED},
    **{kind: set[RedisKind]() for kind in (Kind.REDIS_FULL, Kind.POSTGRES_FULL) if not CAN_FILL},
    Kind.REDIS_DEMOTED: {RedisKind.STANDALONE},
    Kind.REDIS_REPLACED: {RedisKind.SENTINEL, RedisKind.CLUSTER},
    Kind.REDIS_SENTINEL: {RedisKind.SENTINEL},
    Kind.REDIS_MIGRATION: {RedisKind.CLUSTER},
    Kind.REDIS_NODE: {RedisKind.CLUSTER},
    Kind.REDIS_ROLLING: {RedisKind.SENTINEL, RedisKind.CLUSTER},
}

OF_ONE_SHOP = {*_kinds("API"), *_kinds("FOREIGN")} - {Kind.FOREIGN_COMMANDS}
"""Kinds that strike the API or the queue of one source."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault.

    Attributes:
        at: seconds after the start of the run.
        seconds: duration.
        choice: a number from 0 to below 1 that selects one of several victims.
    """

    at: float
    kind: Kind
    seconds: float
    choice: float


def kinds_with(redis: RedisKind, features: Collection[str] = ()) -> list[Kind]:
    """The kinds of faults that occur when Redis runs like this, and the run has these features."""
    return [
        kind
        for kind in Kind
        if redis in _ONLY_WITH.get(kind, {redis}) and (kind != Kind.LAST_RELEASE or LAST_RELEASE in features)
    ]


def plan(seed: int, seconds: float, kinds: Collection[Kind]) -> dict[str, list[Fault]]:
    """The faults of a run with these kinds, by lane, in their order."""
    lanes = [replace(lane, kinds=tuple(kind for kind in lane.kinds if kind in kinds)) for lane in LANES]
    return {lane.name: list(_lane(lane, Random(f"{seed} {lane.name}"), seconds)) for lane in lanes if lane.kinds}


def all_of(lanes: dict[str, list[Fault]]) -> list[Fault]:
    """The same in the order of time."""
    return sorted(chain.from_iterable(lanes.values()), key=lambda fault: fault.at)


def _lane(lane: Lane, random: Random, seconds: float) -> Iterator[Fault]:
    is_short = seconds <= SHORT_RUN
    at = 0.0
    for _ in count():
        for kind in random.sample(lane.kinds, len(lane.kinds)):
            at += random.uniform(*(lane.short_gap if is_short else lane.gap))
            least, most = SECONDS[kind]
            lasts = random.uniform(least, min(most, 1.3 * least) if is_short else most)
            if at + lasts > seconds - _QUIET:
                return
            yield Fault(at, kind, lasts, random.random())
            at += lasts
