"""Takes in what others have left: entries that were released, and those of dead consumers.

Any number of processes do this at once; each claim is one atomic step in Redis, so no entry comes back twice.
"""

import random
import time
from collections.abc import Callable, Mapping, Sequence

from ingest.domain.delivery import Delivery
from ingest.flow.lease import Leases
from ingest.flow.ports import Queue
from ingest.telemetry.logs import get_logger
from ingest.telemetry.shared_metrics import Counter

_log = get_logger("reaper")
# Between two looks that find nothing. An idle process looks between its reads of a second, so after every second one.
_EVERY = 1.5
# Claiming a hundred takes Redis a millisecond or two; then it answers others.
_AT_ONCE = 100


class Reaper:
    """Claims abandoned entries, every second or two while there are none.

    Args:
        queue: where they are.
        leases: what this process holds: not to be taken from itself.
        redeliveries: count what was claimed, by reason.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments: a thousand processes do not ask in step.
    """

    def __init__(
        self,
        queue: Queue,
        leases: Leases,
        redeliveries: Mapping[str, Counter],
        *,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._queue = queue
        self._leases = leases
        self._redeliveries = redeliveries
        self._clock = clock
        self._draw = draw
        self._next = 0.0

    async def claim(self, count: int) -> list[Delivery]:
        """Up to `count` abandoned entries, a hundred at most; none if the last look found too few, a moment ago."""
        if self._clock() < self._next:
            return []
        count = min(count, _AT_ONCE)
        found = await self._queue.claim_abandoned(count)
        if len(found.released) + len(found.dead) < count:
            self._next = self._clock() + self._draw(0.8 * _EVERY, 1.2 * _EVERY)
        return self.taken_over(found.released, "idle") + self.taken_over(found.dead, "dead_consumer")

    def taken_over(self, claimed: Sequence[Delivery], reason: str) -> list[Delivery]:
        """Count what was claimed, but for what is in hand here.

        That is there if the event loop stood still for longer than a lease: claiming has renewed it.
        """
        taken = [delivery for delivery in claimed if not self._leases.holds(delivery.entry)]
        if taken:
            self._redeliveries[reason].inc(len(taken))
        # What was given back has no delivery before this one: taking it is ordinary work, and in an outage nothing but that goes on.
        if abandoned := sum(delivery.count > 1 for delivery in taken):
            _log.info("taken_over", entries=abandoned, reason=reason)
        return taken
