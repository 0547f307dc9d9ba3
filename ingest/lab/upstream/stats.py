"""Counts requests and responses."""

import time
from collections import Counter, deque
from collections.abc import Sequence

import msgspec


class Moment(msgspec.Struct, frozen=True):
    """A point in time on both clocks, in seconds."""

    monotonic: float
    unix: float


class StatsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The response to `GET /stats`. Only requests for orders are counted.

    Attributes:
        requests: received requests for orders.
        orders: requested orders. A request to the list endpoint is for several.
        by_status: requests by HTTP status, `reset`, or `abandoned` if the client disconnected before the response.
            The sum is `requests` less `concurrency` if no request was in flight at the last reset.
        by_id: requests by order ID, including requests to the list endpoint, or empty on request.
        concurrency: requests in progress.
        peak_concurrency: maximum of `concurrency`.
        busiest_second: maximum number of requests received within any second.
        first_request: time of the first request.
        last_request: time of the last request.
        open_connections: open connections, including the connection of this request.
    """

    requests: int
    orders: int
    by_status: dict[str, int]
    by_id: dict[str, int]
    concurrency: int
    peak_concurrency: int
    busiest_second: int
    first_request: Moment | None
    last_request: Moment | None
    open_connections: int

    @property
    def failures(self) -> int:
        """Responses without an order. A truncated response counts as an order."""
        return sum(count for status, count in self.by_status.items() if status != "200")


class Stats:
    """The counters. Each method is called once per request and is cheap."""

    def __init__(self) -> None:
        self.concurrency = 0
        self.open_connections = 0
        self.reset()

    def reset(self) -> None:
        """Reset everything except the requests in flight."""
        self.by_key: dict[bytes, int] = {}
        self.by_status: Counter[str] = Counter()
        self.requests = 0
        self.extra_orders = 0
        self.peak = self.concurrency
        self.first_at: float | None = None
        self.last_at: float | None = None
        self.busiest_second = 0
        # Times of the last second's requests.
        self._arrivals: deque[float] = deque()

    def arrived(self, key: bytes, now: float) -> None:
        """Count a received request."""
        self.requests += 1
        self.by_key[key] = self.by_key.get(key, 0) + 1
        self.concurrency += 1
        self.peak = max(self.peak, self.concurrency)
        if self.first_at is None:
            self.first_at = now
        self.last_at = now
        arrivals = self._arrivals
        arrivals.append(now)
        while arrivals[0] <= now - 1.0:
            arrivals.popleft()
        self.busiest_second = max(self.busiest_second, len(arrivals))

    def arrived_list(self, keys: Sequence[bytes], now: float) -> None:
        """Count a received request for several orders or for none."""
        self.arrived(keys[0] if keys else b"", now)
        self.extra_orders += len(keys) - 1
        for key in keys[1:]:
            self.by_key[key] = self.by_key.get(key, 0) + 1

    def ended(self, label: str) -> None:
        """Count the response to a request, or `abandoned` for a client that disconnected before the response."""
        self.concurrency -= 1
        self.by_status[label] += 1

    def report(self, by_id: dict[str, int]) -> StatsReport:
        """Return the current counters."""
        return StatsReport(
            requests=self.requests,
            orders=self.requests + self.extra_orders,
            by_status=dict(self.by_status),
            by_id=by_id,
            concurrency=self.concurrency,
            peak_concurrency=self.peak,
            busiest_second=self.busiest_second,
            first_request=_moment(self.first_at),
            last_request=_moment(self.last_at),
            open_connections=self.open_connections,
        )


def _moment(monotonic: float | None) -> Moment | None:
    if monotonic is None:
        return None
    return Moment(monotonic, time.time() - (time.monotonic() - monotonic))
