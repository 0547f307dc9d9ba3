"""The leases on the entries that this process holds.

Redis counts how long an entry has been silent; renewing it resets that clock, so that a slow order is not handed to a
second worker while this one lives. If the process dies or freezes, the renewals stop, and after `idle` seconds
of silence another worker claims the entry. One that comes back to life learns at its next renewal what it has lost, and
lets go of it; a row it writes before that is guarded by the order's version.
"""

import asyncio
import time
from collections.abc import Callable

from ingest.domain.delivery import Delivery
from ingest.flow.patience import until_available
from ingest.flow.seams import Queue
from ingest.telemetry.logs import get_logger

_log = get_logger("lease")


class Leases:
    """What this process holds.

    Args:
        queue: where leases are renewed.
        idle: seconds of silence after which others claim.
        clock: monotonic seconds.
    """

    def __init__(self, queue: Queue, idle: float, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue = queue
        self._interval = idle / 3
        self._clock = clock
        self._since: dict[str, float] = {}
        self._working: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._since)

    def held(self) -> list[str]:
        """The entry IDs held now."""
        return list(self._since)

    def holds(self, entry_id: str) -> bool:
        """Whether an entry is still ours, as far as we know."""
        return entry_id in self._since

    def take(self, delivery: Delivery, work: asyncio.Task[None]) -> None:
        """Hold an entry on which `work` goes on; losing the lease cancels the work."""
        self._since[delivery.entry_id] = self._clock()
        self._working[delivery.entry_id] = work

    def work_done(self, entry_id: str) -> None:
        """No task works on the entry any more; it is held until it is settled."""
        self._working.pop(entry_id, None)

    def drop(self, entry_id: str) -> None:
        """Hold the entry no longer: it is settled, given back, or lost."""
        self._since.pop(entry_id, None)
        self._working.pop(entry_id, None)

    async def run(self) -> None:
        """Renew until cancelled."""
        while True:
            await asyncio.sleep(self._interval)
            await self.renew()

    async def renew(self) -> None:
        """Renew what is held for longer than an interval, and let go of what others have taken."""
        before = self._clock() - self._interval
        due = [entry_id for entry_id, since in self._since.items() if since <= before]
        if not due:
            return
        for entry_id in await until_available("redis", self._queue.renew, due):
            if not self.holds(entry_id):
                continue  # settled while the renewal was on its way
            _log.warning("lease_lost", entry_id=entry_id)
            work = self._working.get(entry_id)
            self.drop(entry_id)
            if work is not None:
                work.cancel()
