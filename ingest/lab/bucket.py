"""A leaky bucket, which counts requests or points and refills continuously."""

import time
from collections.abc import Callable


class Bucket:
    """What may still be used.

    Args:
        rate: units per second that are restored.
        size: units that may be used together.
        clock: returns monotonic seconds.

    Attributes:
        used: all units that were used.
    """

    def __init__(self, rate: float, size: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.rate, self.size, self._clock = rate, size, clock
        self._available, self._at = size, clock()
        self.used = 0.0

    @property
    def available(self) -> float:
        """Units that may be used now."""
        now = self._clock()
        self._available = min(self.size, self._available + (now - self._at) * self.rate)
        self._at = now
        return self._available

    def take(self, units: float = 1.0) -> bool:
        """Use units, or return False if too few are available."""
        if self.available < units:
            return False
        self._available -= units
        self.used += units
        return True

    def give_back(self, units: float) -> None:
        """Return units that were not needed after all."""
        self._available = min(self.size, self._available + units)
        self.used -= units
