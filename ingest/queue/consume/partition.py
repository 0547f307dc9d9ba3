"""One partition that a process reads as a named consumer, and the calls to it that fail.

If the process dies here, its entries stay pending under its name, until its successor claims them by `claim_own`, or another consumer by
`claim_abandoned` when its heartbeat has expired.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from ingest.domain.deliveries.partition_trouble import PartitionTrouble, TroubleKind
from ingest.domain.errors import QueueUnavailable
from ingest.domain.exponential_pause import exponential_pause
from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.server_trouble import trouble_of
from ingest.telemetry.logs import get_logger

if TYPE_CHECKING:
    from ingest.queue.consume.liveness import PartitionLiveness
    from ingest.queue.consume.maintenance import PartitionMaintenance
    from ingest.queue.consume.reading import PartitionReading
    from ingest.queue.consume.settling import PartitionSettling

_log = get_logger("queue")
# Seconds between two attempts of a call that fails, the shortest and the longest.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
# A server whose replies take longer counts as slow, until they take less than half of it.
_SLOW = 1.0

Kind = Literal[
    "read", "own", "claim", "heartbeat", "renew", "leave", "ack", "results", "release", "sweep", "due", "trim", "stale", "settle", "troubles",
]  # fmt: skip
"""Calls of one kind to a partition are made one after the other, and fail or succeed together."""


@dataclass(slots=True, eq=False)
class Partition:
    """One partition.

    All methods of the ports raise `QueueUnavailable` when Redis cannot be used right now. It is always safe to call them again. A
    group that has vanished is created again from the start of its streams, because a second delivery changes nothing.

    Attributes:
        queue: its name.
        access: to the group.
        reading, settling, liveness, maintenance: the ports of the partition.
        has_backlog: whether its last read returned as many entries as requested, so that it may have more.
        may_own_more: whether entries may be pending under the name of this consumer that it does not hold.
        leads: whether this process does the maintenance of the partition, according to its last heartbeat.
        unavailable: shown to operators while calls fail.
        slow: shown to operators while its server responds late.
        troubles: by kind, calls that fail: how often in a row, and the time of the event loop before which no other attempt is made.
    """

    queue: str
    access: GroupAccess
    reading: "PartitionReading"
    settling: "PartitionSettling"
    liveness: "PartitionLiveness"
    maintenance: "PartitionMaintenance"
    has_backlog: bool = False
    may_own_more: bool = True
    leads: bool = False
    unavailable: PartitionTrouble | None = None
    slow: PartitionTrouble | None = None
    troubles: dict[Kind, tuple[int, float]] = field(default_factory=dict)

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
        return all(now >= self.troubles[each][1] for each in kinds if each in self.troubles)

    def failed(self, kind: Kind, error: QueueUnavailable, server_of: Callable[[str], str]) -> None:
        """Leave the partition out of calls of a kind for a while."""
        failures, _ = self.troubles.get(kind, (0, 0.0))
        pause = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, failures)
        # Spread over half of it, because all processes notice the same fault.
        until = asyncio.get_running_loop().time() + random.uniform(0.5, 1.0) * pause  # noqa: S311  no secret
        self.troubles[kind] = failures + 1, until
        self.unavailable = unless_known(self.unavailable, self.queue, server_of, error)

    def succeeded(self, kind: Kind, seconds: float, server_of: Callable[[str], str]) -> None:
        """Note that a call of a kind has taken this time."""
        had = self.trouble
        self.troubles.pop(kind, None)
        if not self.troubles:
            self.unavailable = None
        # A read waits for entries.
        if kind != "read" and seconds > _SLOW and self.slow is None:
            self.slow = _begun(self.queue, server_of, TroubleKind.SLOW, f"a reply after {seconds:.1f} s")
        elif kind != "read" and seconds < _SLOW / 2:
            self.slow = None
        if had is not None and self.trouble is None:
            log_end(had)


Share = tuple[Partition, int]
"""A partition, and how many entries it may give."""


def divide(room: int, partitions: Sequence[Partition]) -> list[Share]:
    """Divide room for entries among partitions, among the first ones if it is smaller than their number."""
    asked = partitions[:room]
    if not asked:
        return []
    least, rest = divmod(room, len(asked))
    return [(partition, least + (place < rest)) for place, partition in enumerate(asked)]


def unless_known(
    known: PartitionTrouble | None, queue: str, server_of: Callable[[str], str], error: QueueUnavailable
) -> PartitionTrouble:
    """Return the known trouble of a partition, or the trouble that begins with an error of another kind."""
    kind = trouble_of(error)
    return known if known is not None and known.kind is kind else _begun(queue, server_of, kind, str(error))


def _begun(queue: str, server_of: Callable[[str], str], kind: TroubleKind, error: str) -> PartitionTrouble:
    server = server_of(Keys.of(queue).stream)
    about = {"queue": queue, "server": server, "error": error}
    if kind is TroubleKind.SLOW:
        _log.warning("partition_slow", **about)
    else:
        _log.warning("partition_unavailable", **about, kind=kind.value)
    return PartitionTrouble(queue, server, kind, error, time.time())


def log_end(trouble: PartitionTrouble) -> None:
    """Log that a partition has no trouble any more."""
    _log.info("partition_available", queue=trouble.queue, server=trouble.server)
