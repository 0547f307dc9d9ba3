"""The rate limit of each key, over all processes of one command: a token bucket, kept as the time when it is full again (GCRA).

The times are in memory that the processes share. Taking a token is one read and one write without a lock, so a killed process
blocks nobody; of two requests that different processes admit within the same microsecond, one may go uncounted.
"""

import math
import mmap
from collections.abc import Iterable
from dataclasses import dataclass

from ingest.domain.api_key import ApiKey, RateLimit

# Twice the keys that a file may have: one is found a cell of its own near the one that its digest names.
_CELLS = 4_096
# A part of a token, more than the clock's rounding.
_ROUNDING = 1e-4
_POLICY = '"default"'


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a request for a token.

    Attributes:
        is_admitted: whether there was one.
        remaining: tokens that may be taken at once.
        seconds: until all tokens are available again; without any, until the next one is.
    """

    is_admitted: bool
    remaining: int
    seconds: int


class Bucket:
    """The tokens of one key.

    Args:
        limit: tokens per second, and at most.
        cells: the shared times.
        at: which of them is this bucket's.
    """

    __slots__ = ("_at", "_burst", "_cells", "_interval", "policy")

    def __init__(self, limit: RateLimit, cells: "memoryview[float]", at: int) -> None:
        self._interval = 1.0 / limit.rate
        self._burst = limit.burst
        self._cells = cells
        self._at = at
        window = max(1, math.ceil(limit.burst / limit.rate))
        self.policy = f"{_POLICY};q={max(1, math.floor(limit.rate * window))};w={window}"

    def take(self, now: float) -> Taken:
        """Take a token, if there is one."""
        interval, burst = self._interval, self._burst
        missing = max(0.0, (self._cells[self._at] - now) / interval)
        if missing > burst + _ROUNDING:
            # The time in the cell is of another limit, before the file was changed.
            missing = float(burst)
            self._cells[self._at] = now + missing * interval
        if missing + 1.0 > burst + _ROUNDING:
            return Taken(is_admitted=False, remaining=0, seconds=_seconds((missing + 1.0 - burst) * interval))
        missing += 1.0
        self._cells[self._at] = now + missing * interval
        remaining = math.floor(burst - missing + _ROUNDING)
        until = missing if remaining else missing + 1.0 - burst
        return Taken(is_admitted=True, remaining=remaining, seconds=_seconds(until * interval))

    def headers(self, taken: Taken) -> tuple[tuple[str, str], ...]:
        """Return the header fields of an answer (draft-ietf-httpapi-ratelimit-headers-10)."""
        return (
            ("RateLimit-Policy", self.policy),
            ("RateLimit", f"{_POLICY};r={taken.remaining};t={taken.seconds}"),
        )


class SharedBuckets:
    """The memory of all buckets; made before the processes are forked, which then share it."""

    def __init__(self) -> None:
        self._cells = memoryview(mmap.mmap(-1, _CELLS * 8)).cast("d")

    def of(self, keys: Iterable[ApiKey]) -> dict[bytes, Bucket]:
        """Return the buckets of the keys that have a limit, by digest: in each process the same ones for the same keys."""
        buckets: dict[bytes, Bucket] = {}
        used: set[int] = set()
        for key in sorted(keys, key=lambda key: key.digest):
            if key.limit is None:
                continue
            at = int.from_bytes(key.digest[:8]) % _CELLS
            while at in used:
                at = (at + 1) % _CELLS
            used.add(at)
            buckets[key.digest] = Bucket(key.limit, self._cells, at)
        return buckets


def _seconds(value: float) -> int:
    return max(1, math.ceil(value - _ROUNDING))
