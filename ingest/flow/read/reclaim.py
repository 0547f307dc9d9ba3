"""Reclaims entries that were released, and entries of dead consumers.

Any number of processes do this concurrently. Each claim is one atomic step in Redis, so that no entry is claimed twice.
"""

import time
from collections.abc import Callable, Mapping, Sequence

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.held import Held
from ingest.flow.ports import Reading
from ingest.flow.ticks import next_tick
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("reclaim")
# Claims that find nothing are at most 2.5 seconds apart, at instants that are 1.25 seconds apart. The reads of an idle process end at the
# same instants, so that it claims after every second read.
_EVERY = 1.25
_AT_LEAST = 1.125
# Claiming a hundred entries occupies Redis for a millisecond or two.
_AT_ONCE = 100


class Reclaimer:
    """Claims abandoned entries, every 2.5 seconds while there are none."""

    def __init__(
        self,
        queue: Reading,
        held: Held,
        redeliveries: Mapping[str, Counter],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._queue = queue
        self._held = held
        self._redeliveries = redeliveries
        self._clock = clock
        self._next = 0.0

    async def claim_own(self, count: int, claimed_before: set[EntryRef], *, counted: bool) -> list[Delivery]:
        """Claim up to `count` entries that a predecessor of this name, or a lost reply, has left pending for this consumer."""
        known = {delivery.entry for delivery in self._held.deliveries()} | claimed_before
        claimed = await self._queue.claim_own(count, known, counted=counted)
        return self._redelivered(claimed, "restart")

    async def claim(self, count: int) -> list[Delivery]:
        """Claim up to `count` abandoned entries, at most a hundred, or none shortly after a claim that found too few."""
        if self._clock() < self._next:
            return []
        count = min(count, _AT_ONCE)
        found = await self._queue.claim_abandoned(count)
        if len(found.released) + len(found.dead) < count:
            self._next = next_tick(self._clock() + _AT_LEAST, _EVERY)
        return self._redelivered(found.released, "idle") + self._redelivered(found.dead, "dead_consumer")

    def _redelivered(self, claimed: Sequence[Delivery], reason: str) -> list[Delivery]:
        """Count the claimed entries, except those that this process holds and is not releasing.

        A process claims its own entries if its event loop was blocked for longer than a lease, which renews them. It also claims
        entries that it is releasing while the reply is on its way.
        """
        known = self._held.kept() if claimed else set()
        redelivered = [delivery for delivery in claimed if delivery.entry not in known]
        if redelivered:
            self._redeliveries[reason].inc(len(redelivered))
        # A released entry has no earlier delivery, so that processing it is ordinary work and not logged.
        if abandoned := sum(delivery.count > 1 for delivery in redelivered):
            _log.info("entries_reclaimed", entries=abandoned, reason=reason)
        return redelivered
