"""Draws a story from a seed: the orders of a shop, the processes, and the events with their times."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum, auto
from random import Random

# The events of a story happen within this time, in seconds. A lease ends after 30.
LENGTH = 90.0
LAST = "order-last"
"""An order that is announced after all events."""


class Kind(Enum):
    """The kinds of events, and the values of `Event` that they use."""

    ANNOUNCE = auto()
    """A webhook names the order `order`, and possibly its version. It may come several times. A lost one only creates the order."""
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
    REFUSE = auto()
    """For `seconds`, a new constraint of the table rejects all rows."""
    SUPPRESS = auto()
    """For `seconds`, a trigger of the table suppresses all rows."""
    LOCK = auto()
    """For `seconds`, another session has locked the row of the order `order`."""
    STEP = auto()
    """The clock of Redis is set forward by `seconds`, or back if they are negative."""


_OF_ALL = {Kind.KILL, Kind.STOP, Kind.FREEZE, Kind.REDIS, Kind.POSTGRES, Kind.STEP}
"""Events that concern all sources."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `Kind` describes the values."""

    at: float
    kind: Kind
    source: int = 0
    order: str = ""
    process: int = 0
    seconds: float = 0.0
    response: int = 0
    is_same_name: bool = False
    is_lost: bool = False

    def __str__(self) -> str:
        names = {
            "source": None if self.kind in _OF_ALL else str(self.source),
            "order": self.order,
            "process": self.process if self.kind in {Kind.KILL, Kind.STOP, Kind.FREEZE} else None,
            "seconds": f"{self.seconds:.1f}" if self.seconds else None,
            "response": self.response if self.kind is Kind.API else None,
            "webhook": "lost" if self.is_lost else None,
        }
        shown = ", ".join(f"{name} {value}" for name, value in names.items() if value not in {"", None})
        return f"{self.at:6.1f} s  {self.kind.name.lower()}: {shown}"


@dataclass(frozen=True, slots=True)
class Story:
    """One story.

    Attributes:
        sources: number of sources. Each has orders with these IDs, and contents of its own.
        orders: the orders of each shop. The first part of a name is what happens to the order, see `DEAD`.
        processes: number of processes.
        concurrency: orders in flight of each process.
        latency: the longest time of each way in the network, in seconds.
        response_time: seconds that the API takes for a response.
        slow: the share of requests that take ten times as long.
        loss: the share of requests and replies that are lost.
        shows_versions: whether documents and webhooks contain the time of the last change.
        lag: seconds for which the API still shows the former version of a changed order, and does not find a new one.
        rate: requests per second that the quota of a source permits, or 0 for any number.
        in_progress: concurrent requests that it permits, or 0 for any number.
        flaps: whether each API fails many times for a moment, with responses that blame orders, while processes stop.
        poll: seconds between two readings of the list of each shop, or 0 for none. Without polling, all webhooks arrive.
        overlap: seconds that a reading begins before the one before.
        late: seconds after which some changes are listed, later than others.
        steps: whether the clock of Redis steps, by which documents have their times.
    """

    seed: int
    sources: int
    orders: tuple[str, ...]
    processes: int
    concurrency: int
    latency: float
    response_time: float
    slow: float
    loss: float
    shows_versions: bool
    lag: float
    rate: int
    in_progress: int
    flaps: bool
    events: tuple[Event, ...]
    poll: float = 0.0
    overlap: float = 0.0
    late: float = 0.0
    steps: bool = False

    def __str__(self) -> str:
        head = (
            f"seed {self.seed}: {self.sources} sources, {len(self.orders)} orders in each, {self.processes} processes with "
            f"{self.concurrency} in flight, latency {self.latency:g}, response time {self.response_time:g}, "
            f"{self.slow:.0%} slow, loss {self.loss:g}, "
            f"{'with' if self.shows_versions else 'without'} versions, lag {self.lag:.1f}, "
            f"rate {self.rate}, concurrent requests {self.in_progress}{', flapping' if self.flaps else ''}"
            f"{f', polled every {self.poll:g} s, overlap {self.overlap:g}, {self.late:g} late' if self.poll else ''}"
        )
        return "\n".join([head, *map(str, self.events)])


DEAD = {
    "missing": "not_found",
    "broken": "invalid_order",
    "failing": "attempts_exhausted",
    "refused": "unstorable",
    "poison": "max_deliveries",
}
"""The usual reason of the dead letters of the orders whose name begins so. Every other order is stored."""
_FAULTS = (Kind.KILL, Kind.STOP, Kind.FREEZE, Kind.REDIS, Kind.POSTGRES, Kind.REFUSE, Kind.SUPPRESS, Kind.LOCK)
# Numbers of `simulation.shop.RESPONSES`.
_RESPONSES = 10
# A network that delays requests for longer, or a frozen one, shows the API more requests within a time than were sent.
_CLEAR = 0.01
# The first of these responses that blames an order.
_BLAMING = 7
# Seconds between two outages of one API, or two failures of one table.
_BETWEEN_OUTAGES = 20.0
# In one of so many stories, the APIs flap. In another one, lists are polled, because webhooks are lost, and
# in a third one, the clock of Redis steps.
_FLAPS_EVERY = 10
_POLLED, _STEPS = 3, 5


def story_of(seed: int) -> Story:
    """The story of a seed."""
    random = Random(seed)
    sources = random.choice([1, 1, 2])
    orders = tuple(f"{_kind(random)}-{number}" for number in range(random.randint(1, 40 // sources)))
    processes = random.randint(1, 4)
    flaps = seed % _FLAPS_EVERY == _FLAPS_EVERY - 1
    # With versions, one response that an order is missing is enough, because the order is fetched again for a while.
    shows_versions = random.random() < 0.5 and not flaps
    # Without latency, the same one of several waiting processes would always be the first.
    latency = random.choice([0.001, 0.01, 0.5])
    has_quota = latency <= _CLEAR and random.random() < 0.4
    events = [
        event
        for source in range(sources)
        for event in [*_changes(random, source, orders), *(_flaps if flaps else _outages)(random, source)]
    ]
    events += [
        Event(
            random.uniform(0, LENGTH),
            random.choice([fault for fault in _FAULTS if not (has_quota and fault is Kind.FREEZE)]),
            source=random.randrange(sources),
            order=random.choice(orders),
            process=random.randrange(processes),
            seconds=random.choice([0.01, 0.5, 3, 12, 40]),
            is_same_name=random.random() < 0.5,
        )
        for _ in range(random.randint(0, 8))
    ]
    if flaps:
        events += [
            Event(random.uniform(0, LENGTH), Kind.STOP, process=random.randrange(processes), seconds=0.5)
            for _ in range(20)
        ]
    story = Story(
        seed,
        sources,
        (*orders, LAST),
        processes,
        random.choice([1, 3, 20]),
        latency,
        random.choice([0.0, 0.1, 2.0]),
        random.choice([0.0, 0.1]),
        random.choice([0.0, 0.0, 0.01, 0.1]),
        shows_versions,
        random.choice([0.0, 0.5, 3.0]) if shows_versions else 0.0,
        random.choice([0, 5, 20]) if has_quota else 0,
        random.choice([0, 2, 6]) if has_quota else 0,
        flaps,
        tuple(_apart(sorted(events, key=lambda event: event.at))),
    )
    changed = {_POLLED: _polled, _STEPS: _stepped}.get(seed % _FLAPS_EVERY)
    return story if changed is None else changed(story)


def _stepped(story: Story) -> Story:
    """The story without versions, so that the times of requests decide, and with steps of the clock."""
    random = Random(f"stepped {story.seed}")
    steps = [
        Event(random.uniform(0, LENGTH), Kind.STEP, seconds=random.choice([-60, -8, -3, -1, 1, 3, 8, 60]))
        for _ in range(random.randint(1, 8))
    ]
    events = tuple(sorted([*story.events, *steps], key=lambda event: event.at))
    return replace(story, shows_versions=False, lag=0.0, steps=True, events=events)


def _polled(story: Story) -> Story:
    random = Random(f"polled {story.seed}")
    loss = random.choice([0.3, 1.0])
    events = (
        replace(event, is_lost=True) if event.order.startswith("order") and random.random() < loss else event
        for event in story.events
    )
    # A change is listed within the lag and this time, and the overlap is longer.
    return replace(
        story,
        events=tuple(events),
        poll=random.choice([5.0, 20.0]),
        overlap=random.choice([10.0, 30.0]),
        late=random.choice([0.0, 5.0]),
    )


def _kind(random: Random) -> str:
    return random.choices(["order", *DEAD], [0.88, 0.04, 0.04, 0.01, 0.02, 0.01])[0]


def _changes(random: Random, source: int, orders: tuple[str, ...]) -> list[Event]:
    """Webhooks and changes of the orders of a shop. Some changes follow within a second."""
    events = [Event(random.uniform(0, LENGTH), Kind.ANNOUNCE, source, order) for order in orders]
    changing = [order for order in orders if order.startswith("order")]
    for _ in range(random.randint(0, 2 * len(changing))):
        at, order = random.uniform(0, LENGTH), random.choice(changing)
        for _ in range(random.choice([1, 1, 2])):
            kind, seconds = random.choice([Kind.ANNOUNCE, Kind.CHANGE]), random.choice([0, 0, 0.001, 1, 30])
            events.append(Event(at, kind, source, order, seconds=seconds))
            at += random.uniform(0, 1)
    return events


def _outages(random: Random, source: int) -> list[Event]:
    """Times in which the API of a shop fails as a whole. An order that is blamed twice, with another one delivered between, is at fault."""
    events = []
    responses = _RESPONSES
    at = random.choice([0.0, random.uniform(0, LENGTH)])
    while at < LENGTH and random.random() < 0.7:
        seconds = random.choice([0.01, 0.5, 3, 12, 40])
        events.append(Event(at, Kind.API, source, seconds=seconds, response=random.randrange(responses)))
        if events[-1].response >= _BLAMING:
            responses = _BLAMING
        at += seconds + _BETWEEN_OUTAGES + random.uniform(0, LENGTH / 2)
    return events


def _flaps(random: Random, source: int) -> list[Event]:
    """Short times in which the API of a shop sends responses that blame orders. An order is blamed by two of them, with evidence for each."""
    events, at = [], random.uniform(0, 5)
    while at < LENGTH:
        seconds = random.choice([0.1, 0.5, 1.5])
        events.append(Event(at, Kind.API, source, seconds=seconds, response=random.randrange(_BLAMING, _RESPONSES)))
        at += seconds + random.choice([0.1, 0.5, 1.5, 5])
    return events


def _apart(events: list[Event]) -> Iterator[Event]:
    """The events, without failures of a table that follow another one too soon. A row that both reject seems to be at fault."""
    calm_from: dict[int, float] = {}
    for event in events:
        if event.kind in {Kind.REFUSE, Kind.SUPPRESS}:
            if event.at < calm_from.get(event.source, 0.0):
                continue
            calm_from[event.source] = event.at + event.seconds + _BETWEEN_OUTAGES
        yield event
