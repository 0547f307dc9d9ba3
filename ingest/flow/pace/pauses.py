"""Decides when the next request may begin while the external API throttles: after a pause for all, and after one between two requests.

An API that throttles a request states how long to wait, for all requests. If it states no time, the pause is one second, and doubles
with each further rejection up to 30 s, until a request succeeds.

A quota of less than one request in flight needs a pause between requests as well. That pause begins at about the rate that the API
accepted, grows by half with each rejection, and shrinks with each success: fast far from the rate of the last rejection, and slowly
near it, so that rejections stay rare (as in CUBIC by Ha, Rhee and Xu, 2008).

The state is in memory. A process that restarts rebuilds it from its first rejections.
"""

import random
import time
from asyncio import Event
from collections.abc import Callable
from typing import NamedTuple

from ingest.domain.errors import ASKED_TO_WAIT
from ingest.domain.exponential_pause import exponential_pause

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
# The longest pause that is observed. One request a minute is no burden, and shows when the API accepts more.
_LONGEST_RETRY_AFTER = 60.0
# Processes that received the same pause do not resume together.
_JITTER = 1.1
_SHORTEST_INTERVAL = 0.005
_LONGEST_INTERVAL = 60.0
# With these, several processes that share a quota come near it, and about one request in eight is rejected.
_SLOWER = 1.5
_FASTER_NEAR = (0.02, 0.04)
_FASTER_FAR = 0.1
# Successes after which the last rejection may have been caused by another client.
_FEW = 12
# Time between two expected rejections, in pauses: at most 10 % of the time is spent pausing.
WORK_PER_PAUSE = 10.0


# Rejections in a row from which on the API counts as throttling. A single one is how its limit is found.
_MANY = 3
# Seconds after a pause in which a request may be answered.
_ANSWERED_WITHIN = 3.0


class Throttling(NamedTuple):
    """The throttling of the external API.

    Attributes:
        seconds: since it began.
        left: seconds until requests are sent again.
        error: the last rejection.
        is_asked: whether the API has named the time to wait.
    """

    seconds: float
    left: float
    error: str
    is_asked: bool


class Pauses:
    """The pauses of one process.

    Attributes:
        is_on: whether there may be something to wait for.
        interval: seconds between the beginnings of two requests, or 0 while limiting the number in flight is enough.
        pause: seconds of the last pause for all.
        asked: set when the API has requested a pause that concerns the other processes.
        asked_until: when the longest of those pauses ends, by the clock.

    Args:
        shared_from: seconds from which a pause concerns the other processes. A shorter one ends before they see it.
    """

    def __init__(
        self,
        *,
        shared_from: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        draw: Callable[[float, float], float] = random.uniform,
    ) -> None:
        self._shared_from = shared_from
        self._clock = clock
        self._draw = draw
        self._until = self._next_start = 0.0
        self.asked = Event()
        self.asked_until = 0.0
        self._rejections = 0
        self._throttled_at: float | None = None
        self._named_until = 0.0
        self._error = ASKED_TO_WAIT
        self._successes = 0
        self._rejected_at = clock()
        self._accepted_every = 0.0
        self._too_fast = 0.0
        self.is_on = False
        self.interval = 0.0
        self.pause = _FIRST_PAUSE

    def ask(self, seconds: float) -> None:
        """The API's quota is exhausted for `seconds`: all requests pause, including requests of other processes."""
        seconds = min(seconds, _LONGEST_RETRY_AFTER)
        self.pause_for(seconds)
        self._note(seconds)

    def pause_for(self, seconds: float) -> None:
        """The API has requested a pause from another process."""
        self._begin(seconds)
        self._until = max(self._until, self._clock() + seconds * self._draw(1.0, _JITTER))
        self.is_on = True

    def delay(self) -> float:
        """Seconds until the next request may begin, 0 or less for now."""
        if not self.is_on:
            return 0.0
        delay = max(self._until, self._next_start) - self._clock()
        if delay <= 0 and not self.interval and not self._rejections:
            self.is_on = False
        return delay

    def left(self) -> float:
        """Seconds until the pause for all ends, 0 or less without one."""
        return self._until - self._clock() if self.is_on else 0.0

    def record_start(self) -> None:
        """A request begins."""
        if self.interval:
            self._next_start = self._clock() + self.interval * self._draw(0.9, 1.1)

    def record_throttle(self, retry_after: float | None, error: str = ASKED_TO_WAIT) -> float:
        """The API has throttled a request. Return how many seconds its order should wait."""
        now = self._clock()
        self._begin(min(retry_after or 0.0, _LONGEST_RETRY_AFTER), error)
        floor = exponential_pause(_FIRST_PAUSE, _LONGEST_PAUSE, self._rejections - 1)
        self.pause = max(floor, min(retry_after or 0.0, _LONGEST_RETRY_AFTER))
        self._until = max(self._until, now + self.pause * self._draw(1.0, _JITTER))
        self.is_on = True
        if retry_after:
            self._note(min(retry_after, _LONGEST_RETRY_AFTER))
        return max(retry_after or 0.0, self._draw(floor, 2 * floor))

    def throttled(self) -> Throttling | None:
        """The throttling of the API, if it has asked to wait, or has rejected several requests in a row."""
        now = self._clock()
        if self._throttled_at is None or self._until < now - _ANSWERED_WITHIN:
            self._throttled_at = None
            return None
        is_asked = self._named_until > now
        if not is_asked and self._rejections < _MANY:
            return None
        return Throttling(now - self._throttled_at, max(0.0, self._until - now), self._error, is_asked)

    def _begin(self, asked: float, error: str = ASKED_TO_WAIT) -> None:
        now = self._clock()
        self._throttled_at = now if self._throttled_at is None else self._throttled_at
        self._error = error
        self._named_until = max(self._named_until, now + asked if asked >= self._shared_from else 0.0)

    def _note(self, seconds: float) -> None:
        """Note a pause for the other processes."""
        if seconds >= self._shared_from:
            self.asked_until = max(self.asked_until, self._clock() + seconds)
            self.asked.set()

    def count_throttle(self) -> None:
        """The API has rejected a request that was sent after its last rejection. Call it before `record_throttle`."""
        now = self._clock()
        self._rejections += 1
        # The interval between successes since then, including the pause, is about what it accepts.
        self._accepted_every = (now - self._rejected_at) / self._successes if self._successes else 0.0
        self._successes = 0
        self._rejected_at = now

    def slow_down(self) -> None:
        """A single request in flight was too much. If no request succeeded, the rate is not the cause, and the pauses grow."""
        if not self._accepted_every:
            return
        # Other processes may have used most of the quota. A start that is too fast is soon corrected, a slow start is not.
        self._too_fast = self.interval or min(self._accepted_every, self.pause) / 2
        self.interval = min(max(self._too_fast * _SLOWER, _SHORTEST_INTERVAL), _LONGEST_INTERVAL)

    def record_success(self) -> None:
        """The API has responded without throttling."""
        self._rejections = 0
        if self.left() <= 0:
            self._throttled_at = None
        self._successes += 1
        if not self.interval:
            return
        self.interval /= 1 + (self._slow_step() if self._is_near() else _FASTER_FAR)
        if self.interval < _SHORTEST_INTERVAL:
            self.interval = 0.0

    def _is_near(self) -> bool:
        """Whether a rejection is to be expected soon: the last one is recent, and the pace is about the same."""
        is_recent = self._successes < _FEW or self._clock() < self._rejected_at + (WORK_PER_PAUSE + 1) * self.pause
        return is_recent and self.interval < 1.5 * self._too_fast

    def _slow_step(self) -> float:
        """The share by which a success shortens the interval near the rate that was too fast.

        The slower of several processes gain more, so that they catch up. A fast process gains by time instead of by successes.
        """
        least, most = _FASTER_NEAR
        by_time = (_SLOWER - 1) * self.interval / (WORK_PER_PAUSE * self.pause)
        return min(by_time, max(least, min(most, self.interval / _LONGEST_INTERVAL)))

    def resume(self) -> None:
        """End every pause, because the API works again."""
        self._until = self._next_start = self._named_until = 0.0
        self._rejections = 0
        self._throttled_at = None
