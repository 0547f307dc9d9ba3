"""For how long requests to the external API have been waiting without any response."""

import time


class Unanswered:
    """The unanswered requests to one external API, as observed by one process."""

    def __init__(self) -> None:
        self._waiting = 0
        self._since: float | None = None

    def seconds(self) -> float:
        """Return the seconds, or 0 without requests in flight."""
        return time.monotonic() - self._since if self._waiting and self._since is not None else 0.0

    def begin(self, started_at: float) -> None:
        """A request begins, in monotonic seconds."""
        self._waiting += 1
        self._since = started_at if self._since is None else self._since

    def end(self, ended_at: float, *, timed_out: bool) -> None:
        """A request has ended, in monotonic seconds. After a timeout, the time continues. Otherwise it begins again."""
        self._waiting -= 1
        if not timed_out:
            self._since = ended_at if self._waiting else None
