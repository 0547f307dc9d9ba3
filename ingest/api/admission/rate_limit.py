"""The rate limit of each key over all processes of a command. It is a token bucket, stored as the time when it is full again (GCRA).

The processes share the memory of these times. Each time has a lock, which the system releases when its holder dies. A process that
does not get the lock soon, because its holder was interrupted, continues without it, and one request may go uncounted.
"""

import fcntl
import math
import mmap
import os
import tempfile
import weakref
from collections.abc import Iterable
from dataclasses import dataclass

from ingest.domain.api_key import ApiKey, RateLimit

# Twice the keys that a file may have, so that each key finds its own cell near the cell of its digest.
_CELLS = 4_096
# A part of a token that is larger than the clock's rounding.
_ROUNDING = 1e-4
_POLICY = '"default"'
# Seconds by which `now` may be late, because the process was interrupted.
_LATE = 1.0
# Attempts to get a lock. Its holder usually needs it for the time of one or two attempts. An interrupted holder continues when the
# waiting processes yield their cores.
_TRIES = 50


@dataclass(frozen=True, slots=True)
class Taken:
    """The result of a request for a token.

    Attributes:
        is_admitted: Whether there was one.
        remaining: Tokens that may be taken immediately.
        seconds: Until all tokens are available again. If there is none, until the next one is available.
    """

    is_admitted: bool
    remaining: int
    seconds: int


class Bucket:
    """The tokens of one key.

    Args:
        limit: Tokens per second, and at most.
        shared: When each bucket is full.
        at: Which of these times is this bucket's.
    """

    __slots__ = ("_at", "_burst", "_interval", "_shared", "policy")

    def __init__(self, limit: RateLimit, shared: "SharedBuckets", at: int) -> None:
        self._interval = 1.0 / limit.rate
        self._burst = limit.burst
        self._shared = shared
        self._at = at
        window = max(1, math.ceil(limit.burst / limit.rate))
        self.policy = f"{_POLICY};q={max(1, math.floor(limit.rate * window))};w={window}"

    def take(self, now: float) -> Taken:
        """Take a token, if there is one."""
        self._shared.lock(self._at)
        try:
            missing, is_admitted = self._take(now)
        finally:
            self._shared.unlock(self._at)
        remaining = math.floor(self._burst - missing + _ROUNDING)
        until = missing if remaining else missing + 1.0 - self._burst
        return Taken(is_admitted, remaining, max(1, math.ceil(until * self._interval - _ROUNDING)))

    def _take(self, now: float) -> tuple[float, bool]:
        """Return how many tokens are missing afterwards, and whether one was taken."""
        cells, at, interval, burst = self._shared.cells, self._at, self._interval, self._burst
        missing = max(0.0, (cells[at] - now) / interval)
        if missing > burst + _LATE / interval:
            # The time belongs to another limit, from before the file was changed.
            missing = float(burst)
            cells[at] = now + missing * interval
        if missing + 1.0 > burst + _ROUNDING:
            return missing, False
        cells[at] = now + (missing + 1.0) * interval
        return missing + 1.0, True

    def headers(self, taken: Taken) -> tuple[tuple[str, str], ...]:
        """Return the header fields of a response (draft-ietf-httpapi-ratelimit-headers-10)."""
        return (
            ("RateLimit-Policy", self.policy),
            ("RateLimit", f"{_POLICY};r={taken.remaining};t={taken.seconds}"),
        )


class SharedBuckets:
    """The memory of all buckets, made before the processes are forked, which then share it.

    Attributes:
        cells: One time for each bucket, with a lock.
    """

    def __init__(self) -> None:
        self.cells = memoryview(mmap.mmap(-1, _CELLS * 8)).cast("d")
        self._file = _anonymous_file()
        weakref.finalize(self, os.close, self._file)

    def of(self, keys: Iterable[ApiKey]) -> dict[bytes, Bucket]:
        """Return the buckets of the keys that have a limit, by digest, the same in each process for the same keys."""
        buckets: dict[bytes, Bucket] = {}
        used: set[int] = set()
        for key in sorted(keys, key=lambda key: key.digest):
            if key.limit is None:
                continue
            at = int.from_bytes(key.digest[:8]) % _CELLS
            while at in used:
                at = (at + 1) % _CELLS
            used.add(at)
            buckets[key.digest] = Bucket(key.limit, self, at)
        return buckets

    def lock(self, at: int) -> None:
        """Lock one time, if that is possible soon."""
        for _ in range(_TRIES):
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, at)
            except OSError:
                os.sched_yield()
            else:
                return

    def unlock(self, at: int) -> None:
        """Undo `lock`. Without a lock, this has no effect."""
        fcntl.lockf(self._file, fcntl.LOCK_UN, 1, at)


def _anonymous_file() -> int:
    """A file without a name, for its locks."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("rate-limits")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
