"""When this process may begin requests."""

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


class Schedule:
    """Times to begin requests, by our own clock, each to be used once and soon.

    Times that are not used soon lapse, so that saved times are not used together.
    """

    def __init__(self) -> None:
        self._blocks: deque[_Times] = deque()

    def add(self, at: float, count: float, spacing: float, valid: float) -> None:
        """Add `count` times from `at` on."""
        if count > 0:
            self._blocks.append(_Times(at, count, spacing, valid))

    def clear(self) -> int:
        """Drop all times, and return how many of the last ones had not come, without the times of a safe share."""
        left = self._blocks[-1].left if self._blocks else 0
        self._blocks.clear()
        return int(left) if left < math.inf else 0

    def delay(self, now: float) -> float:
        """Seconds until the next time: 0 or less if it has come, infinite if there is none."""
        while self._blocks:
            block = self._blocks[0]
            late = now - block.valid - block.at
            if late > 0:
                lapsed = math.floor(late / block.spacing) + 1 if block.spacing else block.left
                block.at += min(block.left, lapsed) * block.spacing
                block.left -= min(block.left, lapsed)
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
        return max((block.at + block.left * block.spacing for block in self._blocks), default=-math.inf)
