"""When the next request may begin, while the external API asks for fewer: a pause for all, and one between each two.

An API that refuses a request says for how long to wait, and means all requests: none begins before that. Where it says nothing, or
no time at all, the pause is a second, and twice as long each time until something is answered, up to half a minute.

An API whose quota is less than one request in flight at a time needs a pause between requests as well. It begins at about what the API has
let through, grows by half with each refusal, and shrinks with each answer: fast far from where the last refusal came, slowly
near to it, so that refusals, and the pauses that they ask for, stay rare (as CUBIC does with a window; Ha, Rhee, Xu, 2008).

All of it is in memory: a process that restarts learns it again, from its first refusals.
"""

import random
import time
from asyncio import Event
from collections.abc import Callable

_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
# As long as the API asks for, but a request a minute is no burden to it, and shows when it takes more again.
_LONGEST_TOLD = 60.0
# Processes that are told the same do not come back together.
_JITTER = 1.1
_SHORTEST_INTERVAL = 0.005
_LONGEST_INTERVAL = 60.0
# So that several processes that share a quota have one request in eight or so refused, and come near to it.
_SLOWER = 1.5
_FASTER_NEAR = (0.02, 0.04)
_FASTER_FAR = 0.1
# Answers without a refusal after which that may have been somebody else's doing.
_FEW = 12
# Of the time that passes until the next refusal may come, no more than a tenth goes to its pause.
WORK_PER_PAUSE = 10.0


class Pauses:
    """The pauses of one process.

    Attributes:
        is_on: whether there is, or may be, anything to wait for.
        interval: seconds between the beginnings of two requests; 0 while the number in flight is limit enough.
        pause: seconds of the last pause for all.
        asked: set when the API has asked for a pause that concerns the other processes.
        asked_until: when the longest of those ends, by the clock.

    Args:
        shared_from: seconds from which a pause concerns the other processes: they learn of a shorter one when it is about over.
        clock: monotonic seconds.
        draw: a uniform random number between its arguments.
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
        self._refusals = 0
        self._answers = 0
        self._refused_at = clock()
        self._let_through = 0.0
        self._too_fast = 0.0
        self.is_on = False
        self.interval = 0.0
        self.pause = _FIRST_PAUSE

    def ask(self, seconds: float) -> None:
        """The API's quota is used up for so long: all requests pause, including those of other processes."""
        seconds = min(seconds, _LONGEST_TOLD)
        self.pause_for(seconds)
        self._note(seconds)

    def pause_for(self, seconds: float) -> None:
        """Another process was asked to pause."""
        self._until = max(self._until, self._clock() + seconds * self._draw(1.0, _JITTER))
        self.is_on = True

    def delay(self) -> float:
        """Seconds until the next request may begin; 0 or less for now."""
        if not self.is_on:
            return 0.0
        delay = max(self._until, self._next_start) - self._clock()
        if delay <= 0 and not self.interval and not self._refusals:
            self.is_on = False
        return delay

    def left(self) -> float:
        """Seconds until the pause for all ends; 0 or less without one."""
        return self._until - self._clock() if self.is_on else 0.0

    def record_start(self) -> None:
        """A request begins."""
        if self.interval:
            self._next_start = self._clock() + self.interval * self._draw(0.9, 1.1)

    def record_throttle(self, told: float | None) -> float:
        """The API has refused a request, and told to wait, if it did; returns how long its order should wait."""
        now = self._clock()
        floor = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(max(0, self._refusals - 1), 30))
        self.pause = max(floor, min(told or 0.0, _LONGEST_TOLD))
        self._until = max(self._until, now + self.pause * self._draw(1.0, _JITTER))
        self.is_on = True
        if told:
            self._note(min(told, _LONGEST_TOLD))
        return max(told or 0.0, self._draw(floor, 2 * floor))

    def _note(self, seconds: float) -> None:
        """Let other processes learn of a pause."""
        if seconds >= self._shared_from:
            self.asked_until = max(self.asked_until, self._clock() + seconds)
            self.asked.set()

    def count_throttle(self) -> None:
        """The API has refused what was sent after its last refusal: call it before `record_throttle`."""
        now = self._clock()
        self._refusals += 1
        # What it has let through meanwhile, its pause included, is about what it bears.
        self._let_through = (now - self._refused_at) / self._answers if self._answers else 0.0
        self._answers = 0
        self._refused_at = now

    def slow_down(self) -> None:
        """A single request at a time was too much. If nothing was let through at all, the rate is not the cause, and the pauses grow."""
        if not self._let_through:
            return
        # Others may have had most of what was let through just now: a start that is too fast is soon corrected, one too slow is not.
        self._too_fast = self.interval or min(self._let_through, self.pause) / 2
        self.interval = min(max(self._too_fast * _SLOWER, _SHORTEST_INTERVAL), _LONGEST_INTERVAL)

    def record_success(self) -> None:
        """The API has answered a request, and did not throttle it."""
        self._refusals = 0
        self._answers += 1
        if not self.interval:
            return
        self.interval /= 1 + (self._slow_step() if self._is_near() else _FASTER_FAR)
        if self.interval < _SHORTEST_INTERVAL:
            self.interval = 0.0

    def _is_near(self) -> bool:
        """Whether a refusal is to be expected soon: it is not long ago, and the pace is about what it was then."""
        is_recent = self._answers < _FEW or self._clock() < self._refused_at + (WORK_PER_PAUSE + 1) * self.pause
        return is_recent and self.interval < 1.5 * self._too_fast

    def _slow_step(self) -> float:
        """How much faster an answer makes it near to what was too fast.

        The slower of several processes gain more, so that none is left behind. A fast one gains by time rather than by answers.
        """
        least, most = _FASTER_NEAR
        by_time = (_SLOWER - 1) * self.interval / (WORK_PER_PAUSE * self.pause)
        return min(by_time, max(least, min(most, self.interval / _LONGEST_INTERVAL)))

    def resume(self) -> None:
        """The API answers again: whatever it asked for before is over."""
        self._until = self._next_start = 0.0
        self._refusals = 0
