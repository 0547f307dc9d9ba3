"""Reclaims what others have left: entries that were released, and those of dead consumers.

Any number of processes do this at once; each claim is one atomic step in Redis, so no entry is claimed twice.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.flow.held import Held
from ingest.flow.ports import Source
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("reclaim")
# Between two claims that find nothing. An idle process asks between its reads of a second, so after every second one.
_EVERY = 1.5
# Claiming a hundred takes Redis a millisecond or two; then it answers others.
_AT_ONCE = 100


class Reclaimer:
    """Claims abandoned entries, every second or two while there are none.

    Args:
        queue: where they are.
        held: what this process holds, and must not process twice.
        redeliveries: count what was claimed, by reason.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments: a thousand processes do not ask in step.
    """

    def __init__(
        self,
        queue: Source,
        held: Held,
        redeliveries: Mapping[str, Counter],
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._queue = queue
        self._held = held
        self._redeliveries = redeliveries
        self._clock = clock
        self._draw = draw
        self._next = 0.0

    async def claim_own(self, count: int, claimed_before: set[EntryRef], *, counted: bool) -> list[Delivery]:
        """Up to `count` entries that a predecessor of this name, or a lost reply, has left pending for this consumer."""
        claimed = await self._queue.claim_own(count, self._known() | claimed_before, counted=counted)
        return self.redelivered(claimed, "restart")

    async def claim(self, count: int) -> list[Delivery]:
        """Up to `count` abandoned entries, a hundred at most; none if the last claim found too few, a moment ago."""
        if self._clock() < self._next:
            return []
        count = min(count, _AT_ONCE)
        found = await self._queue.claim_abandoned(count)
        if len(found.released) + len(found.dead) < count:
            self._next = self._clock() + self._draw(0.8 * _EVERY, 1.2 * _EVERY)
        return self.redelivered(found.released, "idle") + self.redelivered(found.dead, "dead_consumer")

    def _known(self) -> set[EntryRef]:
        return {delivery.entry for delivery in self._held.deliveries()}

    def redelivered(self, claimed: Sequence[Delivery], reason: str) -> list[Delivery]:
        """Count what was claimed, except what this process holds and is not releasing.

        That is claimed if the event loop was blocked for longer than a lease: claiming has renewed it. What is being released is
        claimed if the reply to that has not come yet.
        """
        known = self._held.kept() if claimed else set()
        redelivered = [delivery for delivery in claimed if delivery.entry not in known]
        if redelivered:
            self._redeliveries[reason].inc(len(redelivered))
        # What was released has no delivery before this one: to process it is ordinary work, and in an outage all that happens.
        if abandoned := sum(delivery.count > 1 for delivery in redelivered):
            _log.info("entries_reclaimed", entries=abandoned, reason=reason)
        return redelivered
