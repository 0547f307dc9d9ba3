"""Polls the list of orders of one source in a worker process, whenever it is due and no other process does it.

The pause between two readings is spent waiting, without a command to Redis. A process that had the last turn continues on time, and the
others a moment later, so that the turn stays in one process, whose connection and access token are kept.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from ingest.domain.errors import Fault, Unavailable, UserError
from ingest.domain.fetch.listed import ListedPage, ListShape, OrderList, PageRequest
from ingest.domain.operating.polling import PollState, PollTurn
from ingest.flow.followed_controls import SourceControls
from ingest.flow.pace.pace import Pace
from ingest.flow.waiting import ended_before, first_of
from ingest.operations.poll.look import Found
from ingest.operations.poll.turns import TurnLost, Turns
from ingest.store.polls import Polls
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

if TYPE_CHECKING:
    from ingest.upstream.quota.quota import FleetQuota

_log = get_logger("poll")

# How often the lag is updated while nothing happens.
_LONGEST_WAIT = 15.0
# Processes that had not the last turn wait longer by up to this share of the pause, and these seconds.
_LATER_SHARE, _LATER_MOST = 0.1, 10.0
_AFTER_OUTAGE = 5.0
# A page waits for the requests of orders at most this long, and looks this often.
_LONGEST_YIELD, _YIELD_STEP = 30.0, 0.1


@dataclass(frozen=True, slots=True)
class YieldingList:
    """A list whose pages are requested behind the requests for orders, and not while the API has asked to wait or an operator holds it.

    Attributes:
        orders: the list.
        pace: of the requests for orders.
        controls: of the source.
        quota: that the process shares with others. None without one.
    """

    orders: OrderList
    pace: Pace
    controls: SourceControls
    quota: "FleetQuota | None"

    @property
    def shape(self) -> ListShape:
        """See `OrderList`."""
        return self.orders.shape

    async def page(self, request: PageRequest) -> ListedPage:
        """See `OrderList`."""
        left = _LONGEST_YIELD
        while self.pace.is_paused() or (left > 0 and self.quota is not None and self.quota.has_waiting):
            await asyncio.sleep(_YIELD_STEP)
            left -= _YIELD_STEP
        await self.controls.admit_page()
        return await self.orders.page(request)


@dataclass(slots=True)
class Poller:
    """A part of a worker, see `FleetPart`.

    Attributes:
        polls: the recorded turns and positions.
        turns: of this process.
        orders: the list.
        name: the holder's name.
        every: seconds between two readings.
        metrics: of the source.
        now: our clock.
        draw: returns a uniform random number between its arguments, for the order of processes.
    """

    polls: Polls
    turns: Turns
    orders: OrderList
    name: str
    every: float
    metrics: WorkerMetrics
    now: Callable[[], datetime]
    draw: Callable[[float, float], float] = random.uniform
    _position: datetime | None = None
    _problem: str = ""
    _note: str = ""
    _last: Found = field(default_factory=lambda: Found(datetime.min.replace(tzinfo=UTC)))
    _closed: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Poll until cancelled or closed."""
        self.metrics.poll_interval.set(self.every)
        while not self._closed.is_set():
            try:
                pause = await self._step()
                self._problem = ""
            except (Unavailable, UserError) as error:
                if str(error) != self._problem:
                    self._problem = str(error)
                    _log.warning("poll_not_possible", error=self._problem, retry_in=_AFTER_OUTAGE)
                pause = _AFTER_OUTAGE
            except Exception:  # noqa: BLE001  a bug in polling must not stop the orders
                self.metrics.polls["failed"].inc()
                _log.exception("poll_failed", error="a bug", retry_in=self.every)
                pause = self.every
            await self._wait(pause)

    def close(self) -> None:
        """See `FleetPart`. A reading ends, and its turn is released."""
        self._closed.set()

    async def _step(self) -> float:
        """Read the list if it is due, and return the seconds to wait."""
        state = await self.polls.state()
        if state is not None:
            self._position = state.position
            due_in = self._due_in(state)
            if due_in > 0:
                return due_in + self._delay(state)
        turn = await self.turns.take(is_due=state is not None and state.due_in > 0)
        if turn is None:
            return self.draw(0.1, 1.0)
        self._position = turn.position
        if turn.is_recovered:
            _log.warning("poll_position_lost", position=turn.position.isoformat())
        await ended_before(self._read(turn), self._closed)
        return 0.0

    def _due_in(self, state: PollState) -> float:
        """Return the seconds until the next reading, which was planned when the interval may have been longer."""
        if state.is_reading or state.failures or state.looked_ago is None:
            return state.due_in
        return min(state.due_in, self.every - state.looked_ago)

    def _delay(self, state: PollState) -> float:
        if state.holder == self.name and not state.is_reading:
            return 0.0
        return self.draw(0.1, min(_LATER_MOST, 0.1 + _LATER_SHARE * self.every))

    async def _read(self, turn: PollTurn) -> None:
        try:
            found = await self.turns.run(turn, self.orders)
        except TurnLost:
            _log.warning("poll_turn_lost")
        except (Fault, UserError) as error:
            self.metrics.polls["failed"].inc()
            _log.warning("poll_failed", error=str(error), failures=turn.failures + 1)
        else:
            self._position = found.position
            self._count(found)

    def _count(self, found: Found) -> None:
        counts, gaps, last = found.counts, found.gaps, self._last
        self.metrics.polls["done"].inc()
        for result in ("enqueued", "waiting", "unchanged", "skipped"):
            self.metrics.polled_orders[result].inc(getattr(counts, result))
        for result in ("unusable", "untimed", "left_out", "unread"):
            self.metrics.polled_orders[result].inc(getattr(gaps, result))
        if gaps.sentences and gaps.sentences != last.gaps.sentences:
            _log.warning("poll_incomplete", not_proven=gaps.sentences, unread=gaps.unread)
        if found.behind and not last.behind:
            _log.warning("poll_times_behind", behind=round(found.behind))
        if gaps.note and gaps.note != self._note:
            self._note = gaps.note
            _log.info("poll_pages_limited", note=gaps.note)
        self._last = found
        self.metrics.poll_behind.set(found.behind)
        log = _log.info if counts.enqueued else _log.debug
        log("poll_done", listed=counts.listed, enqueued=counts.enqueued, waiting=counts.waiting, pages=counts.pages)

    async def _wait(self, pause: float) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + pause
        while not self._closed.is_set():
            if self._position is not None:
                self.metrics.source_lag.set(max(0.0, (self.now() - self._position).total_seconds()))
            left = until - loop.time()
            if left <= 0:
                return
            await first_of((), self._closed, within=min(left, _LONGEST_WAIT))
