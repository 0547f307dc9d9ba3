"""Reads the next deliveries: first unfinished entries of this consumer, then abandoned ones, then new ones.

Every read happens here, and only when a slot is free.
"""

import random
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.errors import Unavailable
from ingest.flow.availability import log_unavailable
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.isolation import SourceIsolation
from ingest.flow.ports import Reading
from ingest.flow.read.reclaim import Reclaimer
from ingest.flow.shutdown import Shutdown
from ingest.flow.ticks import sleep_to_tick
from ingest.telemetry.logs import get_logger

_log = get_logger("reader")

# Seconds for which a read waits for new entries. A stop waits for the read instead of cancelling it.
BLOCK = 1.25
# With many free slots, the first orders are requested while the next entries are read.
_MOST_AT_ONCE = 100
_PROBE_BLOCK = 0.05
# Each new entry wakes every blocked reader, which costs Redis up to 5 us each. Of many idle processes, this many wait in a
# blocking read, and the others poll about once a second.
_MOST_BLOCKED = 32


class Batch(msgspec.Struct, frozen=True):
    """The result of one read.

    Attributes:
        deliveries: the deliveries to process.
        is_full: whether there may be more, because every free slot got one.
        is_isolated: whether the only delivery must be processed while no other delivery of the source is in flight.
    """

    deliveries: list[Delivery]
    is_full: bool = False
    is_isolated: bool = False


class Reader:
    """The deliveries for one process.

    Args:
        release: releases entries that must wait for their isolation. Raises `Unavailable` if Redis is unavailable.
        isolate_above: deliveries of an entry above which it is isolated, because it may have killed its workers.
        isolation: of its entries from other sources.
        block: seconds for which a read waits for new entries.
    """

    def __init__(
        self,
        queue: Reading,
        reclaimer: Reclaimer,
        release: Callable[[Sequence[Delivery]], Awaitable[None]],
        heartbeats: Heartbeats,
        *,
        isolate_above: int,
        isolation: SourceIsolation,
        block: float = BLOCK,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._queue = queue
        self._reclaimer = reclaimer
        self._release = release
        self._heartbeats = heartbeats
        self._isolate_above = isolate_above
        self._isolation = isolation
        self._block = block
        self._draw = draw
        self._is_paused = False
        # True at the start, for a predecessor's entries, and after a failed read, whose reply may have contained entries.
        self._may_own_more = True
        # Entries that were claimed since then. An entry whose processing failed with a bug stays pending until its lease ends.
        # Claiming it again immediately would block all others.
        self._claimed_own: set[EntryRef] = set()
        # Claiming a predecessor's entry counts, because the entry may have killed it. Entries of a lost reply were already counted.
        # After a lost reply the next read is smaller, for networks that lose large replies.
        self._is_counted = True
        self._most = 0

    async def read(self, count: int, shutdown: Shutdown) -> Batch:
        """Up to `count` deliveries, waiting for new ones. None, after a pause, while Redis is unavailable.

        Args:
            count: the number of free slots.
            shutdown: ends a pause.
        """
        wanted = min(count, _MOST_AT_ONCE)
        try:
            batch = await self._next(wanted)
        except Unavailable as error:
            await self._pause(error, shutdown)
            return Batch([])
        self._resume()
        return batch

    async def read_probe(self, shutdown: Shutdown, ahead: int = 0) -> list[Delivery]:
        """One delivery for a probe, which is a new one, a released one, or one left pending by a predecessor or a lost reply.

        Args:
            shutdown: ends a pause while Redis is unavailable.
            ahead: how many new entries to skip and release.
        """
        try:
            new = await self._queue.read(1 + ahead, _PROBE_BLOCK)
            if new[:-1]:
                await self._release(new[:-1])
            deliveries = new[-1:] or await self._reclaimer.claim(1) or await self._left_unfinished(1)
        except Unavailable as error:
            self._reply_was_lost(1)
            await self._pause(error, shutdown)
            return []
        self._resume()
        return deliveries

    async def _next(self, wanted: int) -> Batch:
        count = min(wanted, self._most or wanted)
        try:
            if self._isolation.may_claim():
                with self._isolation.claiming():
                    taken = await self._left_unfinished(count) or await self._reclaimer.claim(count)
                    if taken:
                        return await self._batch_of(taken, wanted)
            return await self._batch_of(await self._read(count), wanted)
        except Unavailable:
            self._reply_was_lost(count)
            raise

    async def _batch_of(self, taken: list[Delivery], wanted: int) -> Batch:
        # Doubles with each reply, until it no longer limits anything.
        self._most = 2 * self._most if len(taken) == self._most else self._most
        return await self._isolate(taken, is_full=len(taken) == wanted)

    async def _left_unfinished(self, count: int) -> list[Delivery]:
        if not self._may_own_more and not self._queue.may_own_more:
            return []
        own = await self._reclaimer.claim_own(count, self._claimed_own, counted=self._may_own_more and self._is_counted)
        self._claimed_own.update(delivery.entry for delivery in own)
        if not own:
            self._may_own_more = False
            self._claimed_own.clear()
        return own

    async def _read(self, count: int) -> list[Delivery]:
        is_polling = self._block > 0 and self._draw(0.0, self._heartbeats.consumers) > _MOST_BLOCKED
        taken = await self._queue.read(count, 0.0 if is_polling else self._block)
        if is_polling and not taken:
            await sleep_to_tick(self._block)
        return taken

    def _reply_was_lost(self, count: int) -> None:
        self._may_own_more = True
        self._claimed_own.clear()
        self._is_counted = False
        self._most = max(1, count // 2)

    # -- isolation ------------------------------------------------------------------------------------------

    async def _isolate(self, deliveries: list[Delivery], *, is_full: bool) -> Batch:
        """Keep either the harmless entries, or a single entry that may be poison. The others are released, uncounted."""
        # An entry that was delivered often and never settled may have killed its workers.
        harmless = [delivery for delivery in deliveries if delivery.count <= self._isolate_above]
        possible_poison = [delivery for delivery in deliveries if delivery.count > self._isolate_above]
        kept, left = (harmless, possible_poison) if harmless else (possible_poison[:1], possible_poison[1:])
        if left:
            await self._release(left)
            self._claimed_own.difference_update(delivery.entry for delivery in left)
        return Batch(kept, is_full, is_isolated=bool(kept) and not harmless)

    # -- while Redis is unavailable -------------------------------------------------------------------------

    async def _pause(self, error: Unavailable, shutdown: Shutdown) -> None:
        if not self._is_paused:
            log_unavailable(_log, "reading_paused", error, server="redis")
        self._is_paused = True
        await shutdown.pause(BLOCK / 2)

    def _resume(self) -> None:
        if self._is_paused:
            _log.info("reading_resumed")
        self._is_paused = False
