"""Brings back what would otherwise lie still: entries of dead workers, retries whose time has come; and tidies up.

Any number of workers do this at once; each move is one atomic step in Redis, so no entry comes back twice.
"""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from ingest.domain.delivery import Delivery
from ingest.flow.lease import Leases
from ingest.flow.patience import until_available
from ingest.flow.seams import Queue
from ingest.telemetry.board import Counter
from ingest.telemetry.logs import get_logger

_log = get_logger("reaper")
_SWEEP_EVERY = 1.0
# One call looks at ten times as many entries as it may claim; a sweep goes on in later turns.
_MOST_PAGES = 10
_DUE_EVERY = 0.5
_DUE_AT_ONCE = 500
_TIDY_EVERY = 15.0
# A consumer asks at least once a second while it lives; one that was silent so long, and holds nothing, is gone.
_SILENT_FOR = 300.0


class Reaper:
    """Takes over what dead consumers held, and entries that nobody has renewed for `idle` seconds, about once a second.

    Args:
        queue: where they are.
        leases: what this process holds: not to be taken from itself.
        idle: seconds.
        redeliveries: count what was taken over, by reason.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        queue: Queue,
        leases: Leases,
        idle: float,
        redeliveries: Mapping[str, Counter],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._leases = leases
        self._idle = idle
        self._redeliveries = redeliveries
        self._clock = clock
        self._next_sweep = 0.0

    async def sweep(self, count: int) -> list[Delivery]:
        """Up to `count` abandoned entries; none if the last sweep is not a second ago."""
        if self._clock() < self._next_sweep:
            return []
        if taken := self.taken_over(await self._queue.claim_dead(count), "dead_consumer"):
            return taken
        for _ in range(_MOST_PAGES):
            claimed, complete = await self._queue.claim_idle(count, self._idle)
            if taken := self.taken_over(claimed, "idle"):
                return taken
            if complete:
                self._next_sweep = self._clock() + _SWEEP_EVERY
                break
        return []

    def taken_over(self, claimed: Sequence[Delivery], reason: str) -> list[Delivery]:
        """Count what was claimed, but for what is in hand here.

        That is there if the event loop stood still for longer than a lease: claiming has renewed it.
        """
        taken = [delivery for delivery in claimed if not self._leases.holds(delivery.entry_id)]
        if taken:
            self._redeliveries[reason].inc(len(taken))
            _log.info("taken_over", entries=len(taken), reason=reason)
        return taken


async def return_due(queue: Queue) -> None:
    """Put retries back into the stream when their time has come, until cancelled."""
    while True:
        moved = await until_available("redis", queue.move_due, _DUE_AT_ONCE)
        if moved < _DUE_AT_ONCE:
            await asyncio.sleep(_DUE_EVERY)


async def tidy(queue: Queue) -> None:
    """Delete what all groups have finished, and remove consumers that are gone, until cancelled."""
    while True:
        await asyncio.sleep(_TIDY_EVERY)
        trimmed = await until_available("redis", queue.trim)
        removed = await until_available("redis", queue.remove_silent, _SILENT_FOR)
        if trimmed or removed:
            _log.info("tidied", entries_deleted=trimmed, consumers_removed=removed)
