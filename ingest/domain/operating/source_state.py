"""The states of a source, and the reasons why a process does not read, fetch, store or acknowledge its orders."""

from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec


class State(StrEnum):
    """Whether the orders of a source are processed. Of several that apply, the last one is the state of the source."""

    RUNNING = "running"
    IDLE = "idle"
    PAUSED = "paused"
    DRAINING = "draining"
    THROTTLED = "throttled"
    CIRCUIT_OPEN = "circuit_open"
    STORE_UNAVAILABLE = "store_unavailable"
    QUEUE_UNAVAILABLE = "queue_unavailable"
    NO_WORKER = "no_worker"
    REJECTED = "rejected"

    @property
    def text(self) -> str:
        """The state in words."""
        return self.value.replace("_", " ")


_BY_RANK = tuple(State)
POSTGRES, REDIS, UPSTREAM = "postgres", "redis", "external API"


class Reason(msgspec.Struct, frozen=True, omit_defaults=True):
    """The reason for a state.

    Attributes:
        state: the state that it causes. Running for an observation that stops nothing yet.
        text: the cause in one line, without a secret.
        since: when it began, in Unix seconds, or None if that is unknown.
        server: `postgres`, `redis`, or the external API. Empty without one.
        until: when it ends, in Unix seconds, or None if that is unknown.
        needs_operator: whether only an operator can end it.
    """

    state: State
    text: str
    since: float | None = None
    server: str = ""
    until: float | None = None
    needs_operator: bool = False

    @property
    def line(self) -> str:
        """The server and the cause."""
        return f"{self.server}: {self.text}" if self.server else self.text


class ProcessReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """A process reports it with its heartbeats.

    Attributes:
        reasons: why it does not work.
        versions: a digest of each file that the behaviour of the source depends on, by its name, as the process uses it.
    """

    reasons: Sequence[Reason] = ()
    versions: Mapping[str, str] = {}


NO_REPORT = ProcessReport()


def rank(reason: Reason) -> int:
    """Return the position of its state, the most serious one last."""
    return _BY_RANK.index(reason.state)


def merged(reasons: Iterable[Reason]) -> Sequence[Reason]:
    """Return one reason for each state, server and text, with its earliest beginning and its latest end, the most serious first."""
    found: dict[tuple[State, str, str], Reason] = {}
    for each in reasons:
        key = (each.state, each.server, each.text)
        other = found.get(key, each)
        since = min((at for at in (each.since, other.since) if at is not None), default=None)
        until = max((at for at in (each.until, other.until) if at is not None), default=None)
        found[key] = msgspec.structs.replace(each, since=since, until=until)
    return sorted(found.values(), key=rank, reverse=True)
