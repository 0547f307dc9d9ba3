"""One partition that a process reads, and the calls to it that fail."""

import random
from dataclasses import dataclass, field
from typing import Literal

from ingest.domain.deliveries.partition_trouble import PartitionTrouble, TroubleKind
from ingest.domain.exponential_pause import exponential_pause
from ingest.queue.consume.partition.consumer import PartitionConsumer
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")

# Seconds between two attempts of a call that fails, the shortest and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0

Kind = Literal[
    "group", "read", "own", "claim", "heartbeat", "renew", "report", "leave", "ack", "results", "release", "sweep", "due", "trim", "stale", "settle", "troubles",
]  # fmt: skip
"""Calls of one kind to a partition are made one after the other, and fail or succeed together."""


@dataclass(slots=True)
class Trouble:
    """Calls of one kind fail.

    Attributes:
        failures: in a row.
        until: the time of the event loop before which no other attempt is made.
    """

    failures: int
    until: float


@dataclass(slots=True, eq=False)
class Partition:
    """One partition.

    Attributes:
        queue: its name.
        consumer: of the partition.
        has_backlog: whether its last read returned as many entries as requested, so that it may have more.
        may_own_more: whether entries may be pending under the name of this consumer that it does not hold.
        leads: whether this process does the maintenance of the partition, according to its last heartbeat.
        unavailable: shown to operators while calls fail.
        slow: shown to operators while its server responds late.
        troubles: by kind, the calls that fail.
    """

    queue: str
    consumer: PartitionConsumer
    has_backlog: bool = False
    may_own_more: bool = True
    leads: bool = False
    unavailable: PartitionTrouble | None = None
    slow: PartitionTrouble | None = None
    troubles: dict[Kind, Trouble] = field(default_factory=dict)

    @property
    def trouble(self) -> PartitionTrouble | None:
        """The worst trouble, shown to operators."""
        return self.unavailable if self.unavailable is not None else self.slow

    def is_ready(self, kind: Kind, now: float) -> bool:
        """Whether calls of a kind may be made at this time of the event loop.

        A partition without heartbeats is not read, because others reclaim its entries. It is not read either while acks wait there, which
        would deliver its entries again and again.
        """
        if kind == "heartbeat":
            return True
        kinds: tuple[Kind, ...] = (kind,)
        if kind in {"read", "own", "claim"}:
            if "heartbeat" in self.troubles:
                return False
            kinds = kind, "ack", "results"
        return all(now >= self.troubles[each].until for each in kinds if each in self.troubles)

    def leave_out(self, kind: Kind, now: float) -> None:
        """Make no call of a kind, which has failed, for a time that grows with each failure."""
        failures = self.troubles[kind].failures if kind in self.troubles else 0
        pause = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, failures)
        # Spread over half of it, because all processes notice the same fault.
        until = now + random.uniform(0.5, 1.0) * pause  # noqa: S311  no secret
        self.troubles[kind] = Trouble(failures + 1, until)


def begun(trouble: PartitionTrouble) -> PartitionTrouble:
    """Log a trouble that begins now, and return it."""
    about = {"queue": trouble.queue, "server": trouble.server, "error": trouble.error}
    if trouble.kind is TroubleKind.SLOW:
        _log.warning("partition_slow", **about)
    else:
        _log.warning("partition_unavailable", **about, kind=trouble.kind.value)
    return trouble


def log_end(trouble: PartitionTrouble) -> None:
    """Log that a partition has no trouble any more."""
    _log.info("partition_available", queue=trouble.queue, server=trouble.server)
