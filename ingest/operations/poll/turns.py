"""Takes the turn of polling a source, reads its list, and records the position, for workers and for `ingest poll`.

The position advances when all orders up to it are queued. If the process dies before that, its lease ends, and another process reads
from the position before: orders may be enqueued twice, but none is missed.
"""

import asyncio
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

import msgspec

from ingest.domain.errors import Fault, ListFault, PostponedFault, StoreUnavailable, ThrottledFault, UserError
from ingest.domain.exponential_pause import exponential_pause
from ingest.domain.fetch.list_clock import REPEATED_AFTER
from ingest.domain.fetch.listed import SECOND, ListShape, OrderList
from ingest.domain.operating.polling import PollResult, PollTurn
from ingest.operations.leased import while_renewed
from ingest.operations.poll.look import Found, Look, OnProgress
from ingest.store.polls import LEASE, Polls

_RENEW_EVERY = LEASE / 3
_FIRST_PAUSE = 5.0
_LONGEST_PAUSE = 3_600.0
_FIRST = 1
# An empty list is read so much further back.
_FURTHER = (timedelta(hours=1), timedelta(days=1))
_EMPTY = "the list is empty, although the last reading has listed orders that should still be in it"
# All of these orders may have been deleted. After this number of such readings, the list counts as empty.
_MOST_EMPTY = 3
# How often a list is read further back.
_LOOK_BACK_EVERY = timedelta(hours=1)


class TurnLost(Exception):
    """Another process has the turn, because this one could not renew its lease in time."""


class PollPlan(msgspec.Struct, frozen=True):
    """How the list of a source is polled.

    Attributes:
        every: seconds between the beginnings of two readings.
        overlap: how far a reading begins before the position.
        look_back: how far it begins before the position once an hour. 0 for never.
    """

    every: float
    overlap: timedelta
    look_back: timedelta


@dataclass(frozen=True, slots=True)
class Turns:
    """The turns of one source in one process.

    Attributes:
        polls: the recorded turns and positions.
        look: reads the list.
        plan: how it is polled.
        now: our clock.
        draw: returns a uniform random number between its arguments, for pauses after failures.
    """

    polls: Polls
    look: Look
    plan: PollPlan
    now: Callable[[], datetime]
    draw: Callable[[float, float], float] = random.uniform

    async def take(self, *, is_due: bool = False) -> PollTurn | None:
        """Take the turn. See `Polls.take`."""
        return await self.polls.take(self.now(), is_due=is_due)

    async def run(self, turn: PollTurn, orders: OrderList, on_progress: OnProgress = lambda _: None) -> Found:
        """Read the list, and end the turn. When it is cancelled, the turn is released.

        Raises:
            Fault: the list cannot be read. This is recorded.
            UserError: a server denies access, or a setting is wrong. This is recorded if possible.
            StoreUnavailable: PostgreSQL cannot be used right now. The lease ends by itself.
            TurnLost: another process has the turn now.
        """
        started_at, found = time.monotonic(), Found(turn.position)
        try:
            await while_renewed(self._read(turn, orders, on_progress, found), self._renew(turn, found))
            pause = max(0.0, self.plan.every - (time.monotonic() - started_at))
            if not await self.polls.advance(turn, self._result(turn, found, orders.shape), pause):
                raise TurnLost
        except (Fault, UserError) as error:
            await self.polls.fail(turn, found.position, str(error), self.pause_after(error, turn.failures))
            raise
        except asyncio.CancelledError:
            await self._release(turn, found.position)
            raise
        return found

    def _result(self, turn: PollTurn, found: Found, shape: ListShape) -> PollResult:
        shown = found.shown
        # Without times, it only marks the beginning of an empty list.
        before = turn.shown_until if shape.has_times or not shown.count else None
        until = max(filter(None, (shown.until, before)), default=None)
        newest = max(filter(None, (shown.newest, turn.newest)), default=None)
        return PollResult(found.position, until, newest, found.behind, shown.count, self._looks_back(turn))

    async def _read(self, turn: PollTurn, orders: OrderList, on_progress: OnProgress, found: Found) -> None:
        """Read the list from the time that it has shown. Read further back if it is empty, or has shown no times yet."""
        # An order with a time of whole minutes, or seconds, is listed once more when it is fetched again.
        overlap = max(self.plan.overlap, orders.shape.unit + REPEATED_AFTER + SECOND)
        begin = min(turn.position, turn.shown_until or turn.position) - overlap
        since = min(begin, turn.position - (self.plan.look_back if self._looks_back(turn) else overlap))
        position, is_first = turn.position, turn.shown_until is None and orders.shape.has_times
        for further in _FURTHER if is_first else (timedelta(), *_FURTHER):
            begin = since - further
            # In the first reading, the times of older orders only show the clock of the list.
            period = begin, since if turn.fence == _FIRST else begin
            position = await self.look.run(orders, turn, period, overlap, found, on_progress)
            if found.shown.until is not None if is_first else found.shown.count or not turn.listed:
                break
        if turn.listed and not found.shown.count:
            if turn.error != _EMPTY or turn.failures < _MOST_EMPTY:
                raise ListFault(_EMPTY)
            # It may not be empty in truth. Readings begin here until it shows orders again.
            found.shown.until = turn.shown_until or turn.position
        if is_first:
            found.shown.until = found.shown.until or begin
        found.position = position

    def pause_after(self, error: Exception, failures: int) -> float:
        """Return the seconds until the next reading after a failed one."""
        pause = exponential_pause(_FIRST_PAUSE, self.plan.every, failures) * self.draw(0.5, 1.0)
        if isinstance(error, ThrottledFault | PostponedFault) and error.after is not None:
            pause = max(pause, error.after)
        return min(pause, _LONGEST_PAUSE)

    async def _renew(self, turn: PollTurn, found: Found) -> None:
        renewed_at = time.monotonic()
        while True:
            await asyncio.sleep(_RENEW_EVERY)
            try:
                if not await self.polls.renew(turn, found.position):
                    raise TurnLost
                renewed_at = time.monotonic()
            except StoreUnavailable:
                if time.monotonic() - renewed_at > LEASE:
                    raise

    async def _release(self, turn: PollTurn, position: datetime) -> None:
        try:
            async with asyncio.timeout(1.0):
                await self.polls.release(turn, position)
        except (StoreUnavailable, UserError, TimeoutError):
            return  # the lease ends by itself

    def _looks_back(self, turn: PollTurn) -> bool:
        last = turn.looked_back_at
        return bool(self.plan.look_back) and (last is None or self.now() - last >= _LOOK_BACK_EVERY)
