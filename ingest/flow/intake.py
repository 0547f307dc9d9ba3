"""Where the next deliveries come from: first what this consumer left unfinished, then what others abandoned, then new.

All of it goes through one place, so that a slot is taken before anything is read, whatever its source.
"""

from ingest.domain.delivery import Delivery
from ingest.domain.errors import Unavailable
from ingest.flow.lease import Leases
from ingest.flow.reaper import Reaper
from ingest.flow.seams import Queue

# A probe takes a new entry rather than one that was given back: what is given back may be what failed. It need not wait long.
_PROBE_BLOCK = 0.05


class Intake:
    """The deliveries for one process.

    Args:
        queue: where they come from.
        leases: what is in hand already.
        reaper: finds what others abandoned.
        idle: seconds of silence after which an entry counts as abandoned.
        calm: deliveries of an entry up to which nothing is suspected.
    """

    def __init__(self, queue: Queue, leases: Leases, reaper: Reaper, *, idle: float, calm: int) -> None:
        self._queue = queue
        self._leases = leases
        self._reaper = reaper
        self._idle = idle
        self._calm = calm
        # True at the start, for a predecessor's entries, and after a failure here, when a reply may have been lost
        # with entries in it.
        self._may_own_more = True

    async def next(self, count: int, block: float) -> list[Delivery]:
        """Up to `count` deliveries, waiting up to `block` seconds for new ones; or one suspect, to be run alone.

        Raises:
            Unavailable: if Redis cannot be used; nothing is lost, call again.
        """
        try:
            taken = await self._left_behind(count) or await self._reaper.sweep(count) or await self._read(count, block)
            return taken if all(not self.is_suspect(delivery) for delivery in taken) else await self._spare(taken)
        except Unavailable:
            self._may_own_more = True
            raise

    async def one(self) -> list[Delivery]:
        """One delivery, if there is any: a new one, or else one of those given back, in turn.

        Raises:
            Unavailable: as `next`.
        """
        try:
            return await self._queue.read(1, _PROBE_BLOCK) or await self._reaper.sweep(1)
        except Unavailable:
            self._may_own_more = True
            raise

    def is_suspect(self, delivery: Delivery) -> bool:
        """Whether an entry was handed over often and never settled: it may have killed those who held it."""
        return delivery.count > self._calm

    async def _left_behind(self, count: int) -> list[Delivery]:
        if not self._may_own_more:
            return []
        own = self._reaper.taken_over(await self._queue.claim_own(count, self._leases.held()), "restart")
        self._may_own_more = bool(own)
        return own

    async def _read(self, count: int, block: float) -> list[Delivery]:
        # Who was silent itself, as everybody is after an outage of Redis, must not take the others' silence for death.
        taken = await self._queue.read(count, block, self._idle if self._leases.has_standing() else None)
        if all(delivery.count == 1 for delivery in taken):
            return taken
        again = self._reaper.taken_over([delivery for delivery in taken if delivery.count > 1], "idle")
        return [delivery for delivery in taken if delivery.count == 1] + again

    async def _spare(self, taken: list[Delivery]) -> list[Delivery]:
        """Keep no suspect, or one alone, so that nothing goes down with it; the other suspects are given back, uncounted."""
        calm = [delivery for delivery in taken if not self.is_suspect(delivery)]
        suspects = [delivery for delivery in taken if self.is_suspect(delivery)]
        kept = calm or suspects[:1]
        spared = [delivery.entry_id for delivery in suspects if delivery not in kept]
        if spared:
            await self._queue.release(spared)
        return kept
