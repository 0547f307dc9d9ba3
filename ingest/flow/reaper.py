"""Brings back what would otherwise lie still: entries of dead workers, retries whose time has come; and tidies up.

Any number of workers do this at once; each move is one atomic step in Redis, so no entry comes back twice.
"""

import asyncio
import time
from collections.abc import Callable

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
_TIDY_EVERY = 60.0
# A consumer asks at least once a second while it lives; one that was silent so long, and holds nothing, is gone.
_SILENT_FOR = 300.0


class Reaper:
    """Takes over entries that nobody has renewed for `idle` seconds, about once a second.

    Args:
        queue: where they are.
        leases: what this process holds: not to be taken from itself.
        idle: seconds.
        redeliveries: counts what was taken over.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        queue: Queue,
        leases: Leases,
        idle: float,
        redeliveries: Counter,
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
        for _ in range(_MOST_PAGES):
            claimed, complete = await self._queue.claim_idle(count, self._idle)
            # Our own, if the event loop stood still for longer than a lease: claiming has renewed them.
            taken = [delivery for delivery in claimed if not self._leases.holds(delivery.entry_id)]
            if complete:
                self._next_sweep = self._clock() + _SWEEP_EVERY
            if taken:
                self._redeliveries.inc(len(taken))
                _log.info("taken_over", entries=len(taken), reason="idle")
                return taken
            if complete:
                break
        return []


async def return_due(queue: Queue) -> None:
    """Put retries back into the stream when their time has come, until cancelled."""
    while True:
        moved = await until_available("redis", queue.move_due, _DUE_AT_ONCE)
        if moved < _DUE_AT_ONCE:
            await asyncio.sleep(_DUE_EVERY)


async def tidy_group(queue: Queue) -> None:
    """Remove what is left of consumers that were killed, once a minute, until cancelled."""
    while True:
        await asyncio.sleep(_TIDY_EVERY)
        removed = await until_available("redis", queue.remove_silent, _SILENT_FOR)
        if removed:
            _log.info("consumers_removed", consumers=removed)
