"""Tells an outage of the external API from the fault of one order, and keeps quiet while the API is away.

One order that fails while others succeed is at fault itself; when orders fail and none succeeds, the API is. So a failure is
judged only when there is evidence. An answer to a request that began after the failure acquits the API. Many failures with
hardly an answer between them convict it, and so do a few after which nothing is answered for some seconds. Until then the
judgement waits, and the order keeps its slot.

While the circuit is open nothing is read, what is in hand is given back uncounted, and single orders are sent as probes, ever
more slowly; the first answer closes it. An API that only asks to wait is left the requests that it is busy with.
"""

import asyncio
import random
import time
from collections.abc import Callable
from contextlib import suppress

from ingest.domain.errors import CredentialFault, Fault, ThrottledFault, TransientFault
from ingest.telemetry.board import Gauge
from ingest.telemetry.logs import get_logger

_log = get_logger("circuit")

# Different orders that fail, with less than an answer for each four of them in between.
_MANY = 10
_FAILURES_PER_ANSWER = 4
# Seconds after which fewer are enough: nothing has succeeded for so long.
_HOLD = 3.0
# A failure so long ago says nothing about now; orders are retried more often than that.
_STALE = 600.0
# An API that refuses what is too much for it still answers something else in so many seconds.
_HOLD_THROTTLED = 1.0
_FIRST_PAUSE = 0.5
_PAUSE_GROWTH = 1.5
# What the API sees of one process during an outage is a request in so many seconds; its return is noticed as soon.
_LONGEST_PAUSE = 4.0
# As long as the API asks for, but a probe a minute is no burden to it.
_LONGEST_WAIT_AS_TOLD = 60.0


class ApiAway(Exception):
    """The external API is to blame, not the order: give the delivery back, uncounted."""


class Circuit:
    """What this process knows of the external API's health.

    Attributes:
        is_open: whether the API is to be left in peace.
        is_throttled: whether that is because it asks to be.
        closed: set while the circuit is not open.
        on_open: called when it opens.

    Args:
        gauge: 1 while open.
        concurrency: orders in flight, at most; with few, few failures are many.
        hold: seconds for which a few failures wait for an answer to any order.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments.
    """

    def __init__(
        self,
        gauge: Gauge,
        concurrency: int,
        *,
        hold: float = _HOLD,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._gauge = gauge
        self._many = max(2, min(_MANY, concurrency))
        self._hold = hold
        self._clock = clock
        self._draw = draw
        self._failed: dict[str, float] = {}
        self._answers = 0
        self._answered_at = 0.0
        self._closed_at = 0.0
        self._told = 0.0
        self._pauses = 0
        self._opened_at = 0.0
        self._news = asyncio.Event()
        self.closed = asyncio.Event()
        self.closed.set()
        self.is_open = False
        self.is_throttled = False
        self.on_open: Callable[[], None] = lambda: None

    def answered(self, asked_at: float) -> None:
        """The API has answered a request that began at `asked_at`, with whatever only its order is to blame for."""
        if not self._failed and not self.is_open:
            return
        self._answers += 1
        self._answered_at = self._clock()
        if self.is_open:
            self._close()
        acquitted = [order_id for order_id, failed_at in self._failed.items() if failed_at <= asked_at]
        for order_id in acquitted:
            del self._failed[order_id]
        if not self._failed:
            self._answers = 0
        if acquitted:
            self._tell()

    async def judge(self, order_id: str, fault: Fault, asked_at: float) -> None:
        """Return if the order is to blame for a fault, or nobody is; that may take some seconds.

        Raises:
            ApiAway: if the API is.
        """
        if asked_at < self._closed_at:
            raise ApiAway(str(fault))  # a victim of the outage that is over
        failed_at = self._note(order_id, fault)
        if isinstance(fault, ThrottledFault):
            return
        # Later than that, if the same order is in hand twice and has failed again.
        while self._failed.get(order_id, 0.0) >= failed_at:
            left = max(failed_at, self._answered_at) + self._hold - self._clock()
            if left <= 0:
                if not self._is_outage(fault):
                    return
                self._open(fault)
                break
            news = self._news
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await news.wait()
        if self.is_open:
            raise ApiAway(str(fault))

    def pause(self) -> float:
        """Seconds until the next probe: ever more, with jitter, and no less than the API has asked for."""
        longest = min(_LONGEST_PAUSE, _FIRST_PAUSE * _PAUSE_GROWTH ** min(self._pauses, 30))
        self._pauses += 1
        told, self._told = self._told, 0.0
        return max(told, self._draw(0.75 * longest, longest))

    def _note(self, order_id: str, fault: Fault) -> float:
        """Count a failure, and return when it was; raise `ApiAway` if it is one too many, or the circuit is open."""
        now = self._clock()
        if isinstance(fault, ThrottledFault):
            self._told = min(fault.after or 0.0, _LONGEST_WAIT_AS_TOLD)
        if not self.is_open:
            # Once more at the end: the order of failing is the order of the dictionary.
            self._failed.pop(order_id, None)
            self._failed = {failed: at for failed, at in self._failed.items() if at > now - _STALE}
            self._failed[order_id] = now
            if not self._is_too_much(fault):
                return now
            self._open(fault)
        raise ApiAway(str(fault))

    def _is_too_much(self, fault: Fault) -> bool:
        """Whether a failure leaves no doubt, without waiting."""
        count = len(self._failed)
        if count < _FAILURES_PER_ANSWER * self._answers:
            return False
        match fault:
            case ThrottledFault():
                first = next(iter(self._failed.values()))
                return count >= self._many and self._clock() >= first + _HOLD_THROTTLED
            case CredentialFault():
                return count > 1
            case _:
                return count >= self._many

    def _is_outage(self, fault: Fault) -> bool:
        """Whether a failure, with no answer to any order for a while, is the API's."""
        is_unmistakable = isinstance(fault, CredentialFault) or (
            isinstance(fault, TransientFault) and not fault.reached
        )
        return is_unmistakable or len(self._failed) > 1

    def _close(self) -> None:
        self.is_open = False
        self.closed.set()
        self._gauge.set(0.0)
        self._closed_at = self._clock()
        _log.info("circuit_closed", seconds=round(self._closed_at - self._opened_at, 1))

    def _open(self, fault: Fault) -> None:
        self.is_open = True
        self.closed.clear()
        self._gauge.set(1.0)
        self._opened_at = self._clock()
        self._pauses = 0
        self.is_throttled = isinstance(fault, ThrottledFault)
        if not self.is_throttled:
            self._told = 0.0
        # A wrong credential is put right by a person; the rest passes.
        log = _log.error if isinstance(fault, CredentialFault) else _log.warning
        log("circuit_opened", error=str(fault), orders=len(self._failed))
        self._failed.clear()
        self._answers = 0
        self.on_open()
        self._tell()

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
