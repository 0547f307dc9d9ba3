"""Where the next deliveries come from: first what this consumer left unfinished, then what others abandoned, then new.

All of it goes through one place, so that a slot is taken before anything is read, whatever its source.
"""

from ingest.domain.delivery import Delivery
from ingest.domain.errors import Unavailable
from ingest.flow.lease import Leases
from ingest.flow.reaper import Reaper
from ingest.flow.seams import Queue
from ingest.telemetry.board import Counter
from ingest.telemetry.logs import get_logger

_log = get_logger("intake")


class Intake:
    """The deliveries for one process.

    Args:
        queue: where they come from.
        leases: what is in hand already.
        reaper: finds what others abandoned.
        restarted: counts what a predecessor of the same name left.
    """

    def __init__(self, queue: Queue, leases: Leases, reaper: Reaper, restarted: Counter) -> None:
        self._queue = queue
        self._leases = leases
        self._reaper = reaper
        self._restarted = restarted
        # True at the start, for a predecessor's entries, and after a failure here, when a reply may have been lost
        # with entries in it.
        self._may_own_more = True

    async def next(self, count: int, block: float) -> list[Delivery]:
        """Up to `count` deliveries, waiting up to `block` seconds for new ones.

        Raises:
            Unavailable: if Redis cannot be used; nothing is lost, call again.
        """
        if self._may_own_more:
            own = await self._queue.claim_own(count, self._leases.held())
            self._may_own_more = len(own) == count
            if own:
                self._restarted.inc(len(own))
                _log.info("taken_over", entries=len(own), reason="restart")
                return own
        try:
            return await self._reaper.sweep(count) or await self._queue.read(count, block)
        except Unavailable:
            self._may_own_more = True
            raise
