"""The times at which this process may begin requests."""

import math
from collections import deque

import msgspec


class _Times(msgspec.Struct):
    """Times that are `spacing` apart.

    Attributes:
        at: the first that is left.
        left: how many, or infinite for a safe share.
        valid: seconds for which one may be used late.
    """

    at: float
    left: float
    spacing: float
    valid: float

    @property
    def end(self) -> float:
        return self.at + self.left * self.spacing


class Schedule:
    """Times to begin requests, by our own clock, each to be used once and soon.

    Times that are not used soon lapse, so that saved times are not used together.

    Attributes:
        unused: how many have lapsed since `take_unused`.
    """

    def __init__(self) -> None:
        self._blocks: deque[_Times] = deque()
        self._end = -math.inf
        self.unused = 0

    def add(self, at: float, count: float, spacing: float, valid: float) -> None:
        """Add `count` times from `at` on."""
        if count > 0:
            self._blocks.append(_Times(at, count, spacing, valid))
            self._end = max(self._end, self._blocks[-1].end)

    def clear(self) -> None:
        """Let all times lapse."""
        self.unused += int(sum(block.left for block in self._blocks if block.left < math.inf))
        self._blocks.clear()
        self._end = -math.inf

    def delay(self, now: float) -> float:
        """Seconds until the next time: 0 or less if it has come, infinite if there is none."""
        while self._blocks:
            block = self._blocks[0]
            late = now - block.valid - block.at
            if late > 0:
                self._lapse(block, late)
            if block.left >= 1:
                return block.at - now
            self._blocks.popleft()
        return math.inf

    def take(self) -> None:
        """Use the next time, which has come according to `delay`."""
        block = self._blocks[0]
        block.at += block.spacing
        block.left -= 1

    def left(self, now: float) -> float:
        """How many times are left."""
        self.delay(now)
        return sum(block.left for block in self._blocks)

    def end(self) -> float:
        """The end of the last time, or a time in the past if there is none."""
        return self._end

    def take_unused(self) -> int:
        """How many times have lapsed since the last call."""
        unused, self.unused = self.unused, 0
        return unused

    def _lapse(self, block: _Times, late: float) -> None:
        count = min(block.left, math.floor(late / block.spacing) + 1 if block.spacing else block.left)
        block.at += count * block.spacing
        block.left -= count
        if block.left < math.inf:
            self.unused += int(count)
