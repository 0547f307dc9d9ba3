"""Remembers the worker processes of one source that no longer appear in Redis.

When the heartbeat of a stuck process expires, other processes take its entries and remove it from the group, as if it had ended.
"""

from collections.abc import Sequence
from dataclasses import replace

from ingest.queue.operate.partition_monitor import ConsumerState

_LONGEST = 600.0


class GoneConsumers:
    """The processes of one source that were seen in the last ten minutes."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[ConsumerState, float]] = {}

    def add(self, now: float, consumers: Sequence[ConsumerState]) -> list[ConsumerState]:
        """Add a reading, and return the processes that are gone as they were last seen, with the seconds since in `stale_for`."""
        self._seen |= {each.name: (each, now) for each in consumers}
        self._seen = {name: (each, at) for name, (each, at) in self._seen.items() if now - at <= _LONGEST}
        gone = [(each, at) for each, at in self._seen.values() if at < now and each.state != "unknown"]
        return [replace(each, state="stale", stale_for=now - at, reasons=()) for each, at in gone]
