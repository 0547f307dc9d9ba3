"""The server's clock on the clock of this process, by the calls for leases.

The server's time lies between the sending of a call and its reply. Several calls narrow down the difference of the clocks, most of all those
that were answered quickly. If requests and replies take equally long, it is exact however long that is.
"""

from collections import deque

# Few and recent calls, because clocks drift, and the server's clock may step.
_CALLS = 16
_RECENT = 10.0


class ServerClock:
    """Converts times of the server.

    Attributes:
        transit: seconds that a call usually takes.
    """

    def __init__(self) -> None:
        self._calls: deque[tuple[float, float, float]] = deque(maxlen=_CALLS)
        self._ahead = 0.0
        self.transit = 0.0

    def learn(self, sent_at: float, received_at: float, time: float) -> None:
        """A call was sent and answered at these times of this process, and carried out at `time` of the server."""
        while self._calls and self._calls[0][1] < received_at - _RECENT:
            self._calls.popleft()
        self._calls.append((sent_at, received_at, time))
        least, most = self._bounds()
        if least > most:
            # The server's clock has stepped.
            self._calls = deque([self._calls[-1]], _CALLS)
            least, most = self._bounds()
        self._ahead = (least + most) / 2
        self.transit = sorted(received - sent for sent, received, _ in self._calls)[len(self._calls) // 2]

    def local(self, time: float) -> float:
        """Return a time of the server by the clock of this process."""
        return time + self._ahead

    def _bounds(self) -> tuple[float, float]:
        """The least and the most by which the clock of this process may be ahead."""
        return max(sent - time for sent, _, time in self._calls), min(got - time for _, got, time in self._calls)
