"""Draws a story from a seed: the orders of a shop, the processes, and the events with their times."""

from dataclasses import dataclass
from enum import Enum, auto
from random import Random

# The events of a story happen within this time, in seconds. A lease ends after 30.
LENGTH = 90.0
LAST = "order-last"
"""An order that is announced after all events."""


class Kind(Enum):
    """The kinds of events, and the values of `Event` that they use."""

    ANNOUNCE = auto()
    """A webhook names the order `order`, and possibly its version. It may come several times."""
    CHANGE = auto()
    """The order gets its next version, and its webhook follows after `seconds`."""
    KILL = auto()
    """The process `process` ends without any step of its own. Another one starts after `seconds`."""
    STOP = auto()
    """The process ends as asked. Another one starts after `seconds`."""
    FREEZE = auto()
    """For `seconds`, no request and no reply of the process arrives."""
    REDIS = auto()
    """Redis is unavailable for `seconds`."""
    POSTGRES = auto()
    """PostgreSQL is unavailable for `seconds`."""
    API = auto()
    """For `seconds`, the API sends the response number `response` for each order."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `Kind` describes the values."""

    at: float
    kind: Kind
    order: str = ""
    process: int = 0
    seconds: float = 0.0
    response: int = 0
    is_same_name: bool = False

    def __str__(self) -> str:
        names = {
            "order": self.order,
            "process": self.process if self.kind in {Kind.KILL, Kind.STOP, Kind.FREEZE} else None,
            "seconds": f"{self.seconds:.1f}" if self.seconds else None,
            "response": self.response if self.kind is Kind.API else None,
        }
        shown = ", ".join(f"{name} {value}" for name, value in names.items() if value not in {"", None})
        return f"{self.at:6.1f} s  {self.kind.name.lower()}: {shown}"


@dataclass(frozen=True, slots=True)
class Story:
    """One story.

    Attributes:
        orders: the orders of the shop. Names that begin with `missing` or `broken` are no orders.
        processes: number of processes.
        concurrency: orders in flight of each process.
        latency: the longest time of each way in the network, in seconds.
        response_time: seconds that the API takes for a response.
        loss: the share of requests and replies that are lost.
        shows_versions: whether documents and webhooks contain the time of the last change.
        lag: seconds for which the API still shows the former version of a changed order.
    """

    seed: int
    orders: tuple[str, ...]
    processes: int
    concurrency: int
    latency: float
    response_time: float
    loss: float
    shows_versions: bool
    lag: float
    events: tuple[Event, ...]

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {len(self.orders)} orders, {self.processes} processes with {self.concurrency} in flight,"
            f" latency {self.latency:g}, response time {self.response_time:g}, loss {self.loss:g},"
            f" {'with' if self.shows_versions else 'without'} versions, lag {self.lag:.1f}"
        )
        return "\n".join([head, *map(str, self.events)])


_FAULTS = (Kind.KILL, Kind.STOP, Kind.FREEZE, Kind.REDIS, Kind.POSTGRES, Kind.API)
# Numbers of `simulation.world.RESPONSES`.
_RESPONSES = 10


def story_of(seed: int) -> Story:
    """The story of a seed."""
    random = Random(seed)
    orders = tuple(
        f"{random.choices(['order', 'missing', 'broken'], [0.9, 0.05, 0.05])[0]}-{number}"
        for number in range(random.randint(1, 40))
    )
    processes = random.randint(1, 4)
    shows_versions = random.random() < 0.5
    events = [Event(random.uniform(0, LENGTH), Kind.ANNOUNCE, order) for order in orders]
    changing = [order for order in orders if order.startswith("order")]
    for _ in range(random.randint(0, 2 * len(changing))):
        kind = random.choice([Kind.ANNOUNCE, Kind.CHANGE])
        events.append(
            Event(random.uniform(0, LENGTH), kind, random.choice(changing), seconds=random.choice([0, 0, 0.001, 1, 30]))
        )
    events += [
        Event(
            random.uniform(0, LENGTH),
            random.choice(_FAULTS),
            process=random.randrange(processes),
            seconds=random.choice([0.01, 0.5, 3, 12, 40]),
            response=random.randrange(_RESPONSES),
            is_same_name=random.random() < 0.5,
        )
        for _ in range(random.randint(0, 8))
    ]
    return Story(
        seed,
        (*orders, LAST),
        processes,
        random.choice([1, 3, 20]),
        random.choice([0.0, 0.01, 0.5]),
        random.choice([0.0, 0.1, 2.0]),
        random.choice([0.0, 0.0, 0.01, 0.1]),
        shows_versions,
        random.choice([0.0, 0.5, 3.0]) if shows_versions else 0.0,
        tuple(sorted(events, key=lambda event: event.at)),
    )
