"""Measures how fast a request comes."""

# A client is slow if it sends less than this, in bytes per second, measured over one or two seconds.
_SLOWEST = 16 * 1024
_WINDOW = 1.0


class ReceiveRate:
    """The rate of one connection. Times are in monotonic seconds."""

    def __init__(self) -> None:
        self._received = 0
        self._since = 0.0
        self._before: int | None = None

    def restart(self, now: float) -> None:
        """A request begins."""
        self._received, self._before, self._since = 0, None, now

    def add(self, size: int, now: float) -> None:
        """A piece of the request has come."""
        if now - self._since >= _WINDOW:
            self._before, self._received, self._since = self._received, 0, now
        self._received += size

    def is_slow(self, now: float) -> bool:
        """Whether very little has come recently."""
        elapsed = now - self._since
        if elapsed < _WINDOW / 2:
            return self._before is not None and self._before < _SLOWEST * _WINDOW
        return elapsed >= 2 * _WINDOW or self._received < _SLOWEST * elapsed
