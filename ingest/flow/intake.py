"""Where the next deliveries come from: first what this consumer left unfinished, then what others abandoned, then new.

All of it goes through one place, so that a slot is taken before anything is read, whatever its source.
"""

import asyncio
import random
from collections.abc import Callable

from ingest.domain.delivery import Delivery
from ingest.domain.errors import Unavailable
from ingest.flow.lease import Leases
from ingest.flow.ports import Queue
from ingest.flow.reaper import Reaper

# A probe takes a new entry rather than one that was released: what was released may be what failed. It need not wait long.
_PROBE_BLOCK = 0.05
# Each announcement wakes every blocked reader, which costs Redis up to 5 us each: of many idle processes, so many wait in a
# blocking read, and the others look again about once a second.
_MOST_BLOCKED = 32


class Intake:
    """The deliveries for one process.

    Args:
        queue: where they come from.
        leases: what is in hand already.
        reaper: finds what others abandoned.
        calm: deliveries of an entry up to which nothing is suspected.
        draw: a uniform random number between its arguments.
    """

    def __init__(
        self,
        queue: Queue,
        leases: Leases,
        reaper: Reaper,
        *,
        calm: int,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._queue = queue
        self._leases = leases
        self._reaper = reaper
        self._calm = calm
        self._draw = draw
        # True at the start, for a predecessor's entries, and after a failure here, when a reply may have been lost
        # with entries in it.
        self._may_own_more = True
        # A predecessor may have died of an entry: taking it on counts. What came in a lost reply was counted then; on a network
        # that loses large replies, the next is smaller.
        self._is_counted = True
        self._most = 0

    async def next(self, count: int, block: float) -> list[Delivery]:
        """Up to `count` deliveries, waiting up to `block` seconds for new ones; or one suspect, to be run alone.

        Raises:
            Unavailable: if Redis cannot be used; nothing is lost, call again.
        """
        count = min(count, self._most or count)
        try:
            taken = await self._left_behind(count) or await self._reaper.claim(count) or await self._read(count, block)
            taken = taken if all(not self.is_suspect(delivery) for delivery in taken) else await self._spare(taken)
        except Unavailable:
            self._reply_was_lost(count)
            raise
        # Doubled with each reply that came, until it no longer matters.
        self._most = 2 * self._most if len(taken) == self._most else self._most
        return taken

    async def one(self) -> list[Delivery]:
        """One delivery, if there is any: a new one, or else one of those released, in turn.

        Raises:
            Unavailable: as `next`.
        """
        try:
            return await self._queue.read(1, _PROBE_BLOCK) or await self._reaper.claim(1)
        except Unavailable:
            self._reply_was_lost(1)
            raise

    def is_suspect(self, delivery: Delivery) -> bool:
        """Whether an entry was handed over often and never settled: it may have killed those who held it."""
        return delivery.count > self._calm

    def _reply_was_lost(self, count: int) -> None:
        self._may_own_more = True
        self._is_counted = False
        self._most = max(1, count // 2)

    async def _left_behind(self, count: int) -> list[Delivery]:
        if not self._may_own_more:
            return []
        claimed = await self._queue.claim_own(count, self._leases.held(), counted=self._is_counted)
        own = self._reaper.taken_over(claimed, "restart")
        self._may_own_more = bool(own)
        return own

    async def _read(self, count: int, block: float) -> list[Delivery]:
        is_polling = self._draw(0.0, self._leases.consumers) > _MOST_BLOCKED
        taken = await self._queue.read(count, 0.0 if is_polling else block)
        if is_polling and not taken:
            await asyncio.sleep(self._draw(0.75 * block, 1.25 * block))
        if all(delivery.count == 1 for delivery in taken):
            return taken
        again = self._reaper.taken_over([delivery for delivery in taken if delivery.count > 1], "idle")
        return [delivery for delivery in taken if delivery.count == 1] + again

    async def _spare(self, taken: list[Delivery]) -> list[Delivery]:
        """Keep no suspect, or one alone, so that nothing goes down with it; the other suspects are released, uncounted."""
        calm = [delivery for delivery in taken if not self.is_suspect(delivery)]
        suspects = [delivery for delivery in taken if self.is_suspect(delivery)]
        kept = calm or suspects[:1]
        spared = [delivery for delivery in suspects if delivery not in kept]
        if spared:
            await self._queue.release(spared)
        return kept
