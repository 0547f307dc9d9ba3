"""Waits for free slots: a delivery needs one before it is read.

With a backlog, some deliveries are prefetched: when a request ends, the next one begins at once instead of after the next read.
No more are prefetched than begin within a moment, as another process may have a free slot.
"""

import asyncio
import math
from collections.abc import Callable
from contextlib import suppress

from ingest.flow.circuit.breaker import CircuitBreaker
from ingest.flow.held import InFlight
from ingest.flow.pace.limit import ConcurrencyLimit
from ingest.flow.pace.pauses import Pacing
from ingest.flow.shutdown import Shutdown

# With a backlog, reading waits this long for a few free slots together: a read of one costs as much as one of fifty.
_GATHER = 0.002
_GATHER_SHARE = 8
# Prefetched is what begins within this many seconds, by how many slots became free lately, and at most this share of the slots.
_PREFETCH = 0.02
_PREFETCH_SHARE = 2
# Slots that were taken together become free together: "lately" is no shorter than this, and as long as all of them take to become free
# twice, of which at least one time is no such burst.
_LATELY = 0.05
_TURNS = 2
# Until then, as soon as this share of the slots has become free, the others are taken to need about as long.
_FIRST_SHARE = 16
# With slower orders nothing is prefetched: a read takes no time beside them, and after a burst what is prefetched waits for the next one.
_SLOW = 0.5
# With requests for several orders, for the slots of a whole request.
_GATHER_REQUEST = 0.005


class Slots:
    """The slots of one process: as many as the concurrency limit allows now, less those that are taken.

    Args:
        in_flight: which slots are taken.
        limit: how many requests may be in flight.
        pacing: the pauses in which nothing is read.
        circuit: when it opens, waiting ends.
        per_request: orders that one request may be sent for; if more than one, there are at most
        most: slots.
        read_ahead: how many requests can be sent soon, where that is fewer; no more are read, so that other processes may.
    """

    def __init__(
        self,
        in_flight: InFlight,
        limit: ConcurrencyLimit,
        pacing: Pacing,
        circuit: CircuitBreaker,
        *,
        most: int = 0,
        per_request: int = 1,
        read_ahead: Callable[[], int] | None = None,
    ) -> None:
        self._in_flight = in_flight
        self._limit = limit
        self._pacing = pacing
        self._circuit = circuit
        self._most = most
        self._per_request = per_request
        self._read_ahead = read_ahead
        self._share, self._gather = _GATHER_SHARE, _GATHER
        if per_request > 1:
            self._share, self._gather = max(2, math.ceil(most / per_request)), _GATHER_REQUEST
        self._timer: asyncio.TimerHandle | None = None
        # For a request for several orders: others become free with the first slot.
        self._is_first_awaited = False
        self._is_awaited = False
        self._backlog = False
        self._is_one_enough = True
        self._prefetch = 0
        self._freed = 0
        self._freed_since = 0.0
        self._freed_per_second = 0.0
        self._changed = asyncio.Event()
        in_flight.limit_slots(self._most_tasks, self._slot_freed)
        limit.observe(self._limit_grown)
        circuit.observe(lambda _: self._changed.set())

    async def wait(self, shutdown: Shutdown, *, backlog: bool) -> int:
        """How many deliveries may be read now; 0 if there is something else to do first.

        Args:
            shutdown: a request to stop ends the wait.
            backlog: whether to wait a little longer for several slots: then more than one delivery is there to be read.
        """
        free = await self._free(backlog=backlog)
        if free <= 0 or shutdown.requested.is_set() or self._circuit.is_open:
            return 0
        if self._pacing.is_on and (pause := self._pacing.wait()) > 0:
            await self._pause(pause)
            return 0
        return free

    @property
    def is_prefetching(self) -> bool:
        """Whether what may be read now includes deliveries that will wait for a slot."""
        return self._prefetched() > 0

    def wake(self) -> None:
        """End a wait: a stop was requested."""
        self._changed.set()

    async def _free(self, *, backlog: bool) -> int:
        if backlog and not self._backlog:
            # How fast they were the last time says nothing.
            self._freed, self._freed_since = 0, asyncio.get_running_loop().time()
            self._freed_per_second = 0.0
        self._backlog, self._is_one_enough = backlog, not backlog
        self._prefetch = self._useful_prefetch() if backlog else 0
        if not self._are_enough():
            self._changed.clear()
            if self._per_request > 1 and self._count() <= 0:
                self._is_first_awaited = True
            elif not self._prefetch:
                self._start_timer()
            self._is_awaited = True
            await self._changed.wait()
            self._is_awaited = self._is_first_awaited = False
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._prefetch:
                # It may have become slower meanwhile.
                self._prefetch = self._useful_prefetch()
        return self._count()

    def _start_timer(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._gather, self._accept_one)

    async def _pause(self, seconds: float) -> None:
        self._changed.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._changed.wait()

    def _useful_prefetch(self) -> int:
        # With a quota or shared requests, a slot is not all that a delivery waits for.
        if self._per_request > 1 or self._read_ahead is not None:
            return 0
        now, slots = asyncio.get_running_loop().time(), self._limit.value
        elapsed = max(now - self._freed_since, _LATELY)
        if elapsed > _LATELY and self._freed >= _TURNS * slots:
            self._freed_per_second = self._freed / elapsed
            self._freed, self._freed_since, elapsed = 0, now, _LATELY
        if self._freed_per_second:
            # If it is slower now, it will be at most this.
            per_second = min(self._freed_per_second, _TURNS * slots / elapsed)
        else:
            per_second = slots / elapsed if self._freed * _FIRST_SHARE >= slots else 0.0
        return int(per_second * _PREFETCH) if per_second * _SLOW >= slots else 0

    def _count(self) -> int:
        """How many deliveries may be read now."""
        return self._slots() + self._prefetched() - len(self._in_flight.tasks) - self._in_flight.waiting

    def _are_enough(self) -> bool:
        if self._in_flight.waiting:
            return False  # all slots are taken, and not all that was prefetched has begun
        wanted = 1 if self._is_one_enough else self._prefetched() or max(1, self._slots() // self._share)
        return self._count() >= wanted

    def _most_tasks(self) -> int:
        requests = self._limit.value
        return requests if self._per_request == 1 else min(self._most, requests * self._per_request)

    def _slots(self) -> int:
        slots = self._most_tasks()
        return slots if self._read_ahead is None else min(slots, self._read_ahead() * self._per_request)

    def _prefetched(self) -> int:
        """How many deliveries may wait for a slot."""
        return min(self._prefetch, self._limit.value // _PREFETCH_SHARE)

    def _slot_freed(self) -> None:
        self._freed += 1
        if not self._is_awaited:
            return
        if self._are_enough():
            self._changed.set()
        elif self._is_first_awaited:
            self._is_first_awaited = False
            self._start_timer()

    def _limit_grown(self) -> None:
        # An answer makes it grow; its order may keep its slot for long: until it is transformed, or until there is room to store it.
        self._in_flight.fill_slots()
        if self._is_awaited and self._are_enough():
            self._changed.set()

    def _accept_one(self) -> None:
        self._is_one_enough = True
        if self._count() > 0:
            self._changed.set()
