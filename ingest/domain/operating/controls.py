"""The controls that operators set while workers run: pauses, drained processes, changed limits, and log levels.

They are recorded in Redis for the whole deployment and one consumer group, survive restarts, and are followed by every worker process.
"""

from collections.abc import Iterator, Mapping
from datetime import datetime
from types import MappingProxyType
from typing import Literal, get_args

import msgspec

from ingest.domain.errors import InvalidInput

LogLevel = Literal["debug", "info", "warning", "error"]
LOG_LEVELS: tuple[LogLevel, ...] = get_args(LogLevel)

ALL_HOSTS = ""
"""Stands for all hosts in `Controls.log_levels`."""


class Pause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A pause of one source.

    Attributes:
        since: in UTC.
        until: when the pause ends by itself. None if an operator has to resume the source.
        by: the actor, as in the audit log.
        reason: for other operators.
        rejects_orders: whether producers are rejected. Otherwise their orders are queued and wait.
        holds_polls: whether the polls of the source's list wait. Otherwise they continue.
    """

    since: datetime
    until: datetime | None = None
    by: str
    reason: str = ""
    rejects_orders: bool = False
    holds_polls: bool = False

    def applies_at(self, now: datetime) -> bool:
        """Whether the pause has not ended at this time."""
        return self.until is None or now < self.until


class Tuning(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Changed limits of a running source.

    Attributes:
        since: in UTC.
        by: the actor.
        concurrency: orders in flight in each process. None for the configured number.
        rate: requests per second over all processes. None for the configured rate.
    """

    since: datetime
    by: str
    concurrency: int | None = None
    rate: float | None = None


class Drain(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The processes of a host, of one `ingest worker`, or a single process begin no orders until this is undone.

    Attributes:
        since: in UTC.
        by: the actor.
        reason: for other operators.
    """

    since: datetime
    by: str
    reason: str = ""


class LevelChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A changed level of the log of the workers on one host or all hosts.

    Attributes:
        since: in UTC.
        by: the actor.
    """

    level: LogLevel
    since: datetime
    by: str


class Controls(msgspec.Struct, frozen=True, kw_only=True):
    """The controls that are set.

    Attributes:
        version: changes with each change of a control. Empty before the first one.
        pauses: by the name of the source, including those that have ended by themselves, see `pause_of`.
        tunings: by the name of the source.
        drains: by the name of the host, of the `ingest worker` or of the process.
        log_levels: by the name of the host, or `ALL_HOSTS`.
    """

    version: str = ""
    pauses: Mapping[str, Pause] = MappingProxyType({})
    tunings: Mapping[str, Tuning] = MappingProxyType({})
    drains: Mapping[str, Drain] = MappingProxyType({})
    log_levels: Mapping[str, LevelChange] = MappingProxyType({})

    def pause_of(self, source: str, now: datetime) -> Pause | None:
        """Return the pause of a source at this time."""
        pause = self.pauses.get(source)
        return pause if pause is not None and pause.applies_at(now) else None

    def drain_of(self, process: str) -> Drain | None:
        """Return the drain of a process, of its `ingest worker` or of its host."""
        return next((self.drains[name] for name in names_of(process) if name in self.drains), None)

    def log_level_of(self, process: str) -> LogLevel | None:
        """Return the changed log level of a process, or None for the configured one. A level for its host takes precedence."""
        *_, host = names_of(process)
        change = self.log_levels.get(host) or self.log_levels.get(ALL_HOSTS)
        return None if change is None else change.level


NO_CONTROLS = Controls()


def names_of(process: str) -> Iterator[str]:
    """Yield the names under which a worker process can be drained: its own, the name of its `ingest worker`, and its host.

    A process is named after its host, a random word of its `ingest worker` and its number there: `web1-1f0c22ab-0`.
    """
    yield process
    command, _, _ = process.rpartition("-")
    host, _, _ = command.rpartition("-")
    if host:
        yield command
        yield host


class InvalidControl(InvalidInput):
    """The value of a control is invalid."""


_LONGEST_REASON = 200
# A longer pause is most likely a mistake in the unit.
_LONGEST_PAUSE = 365 * 86_400.0
_MOST_CONCURRENCY = 10_000
_MOST_RATE = 1_000_000.0


def checked_reason(reason: str) -> str:
    """Return a reason without blanks at its ends.

    Raises:
        InvalidControl: it is too long, or has characters that cannot be shown in one line.
    """
    reason = reason.strip()
    if len(reason) > _LONGEST_REASON or not reason.isprintable():
        raise InvalidControl(f"a reason is at most {_LONGEST_REASON} printable characters")
    return reason


def checked_duration(seconds: float | None) -> float | None:
    """Return the seconds of a pause.

    Raises:
        InvalidControl: it is not a duration of a pause.
    """
    if seconds is not None and not 1.0 <= seconds <= _LONGEST_PAUSE:
        raise InvalidControl("a pause lasts from 1 second to 365 days, or without a duration until it is resumed")
    return seconds


def checked_limits(concurrency: int | None, rate: float | None) -> None:
    """Check the changed limits of a source.

    Raises:
        InvalidControl: one of them is out of range, or there is none.
    """
    if concurrency is None and rate is None:
        raise InvalidControl("set a concurrency, a rate, or both")
    if concurrency is not None and not 1 <= concurrency <= _MOST_CONCURRENCY:
        raise InvalidControl(f"the concurrency must be from 1 to {_MOST_CONCURRENCY:,}; pause the source to stop it")
    if rate is not None and not 0.0 < rate <= _MOST_RATE:
        raise InvalidControl(f"the rate must be over 0 and at most {_MOST_RATE:,.0f}; pause the source to stop it")
