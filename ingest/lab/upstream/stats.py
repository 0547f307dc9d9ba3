"""Counts requests and responses."""

import time
from collections import Counter, deque
from collections.abc import Sequence

import msgspec

SAMPLE_INTERVAL = 0.1
"""Seconds between two samples of the count, for the rate over the last second."""


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
        rate_mean: responses per second between the first request and the last response.
        rate_last_second: responses during the last second.
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
    rate_mean: float
    rate_last_second: float
    first_request: Moment | None
    last_request: Moment | None
    open_connections: int


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
        self._answered = 0
        self._answered_at = 0.0
        # (time, responses until then) for slightly more than the last second.
        self._samples: deque[tuple[float, int]] = deque(maxlen=round(1 / SAMPLE_INTERVAL) + 1)

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

    def answered(self, label: str, now: float) -> None:
        """Count the response to a request."""
        self.concurrency -= 1
        self.by_status[label] += 1
        self._answered += 1
        self._answered_at = now

    def abandoned(self) -> None:
        """Count a request whose client disconnected before the response."""
        self.concurrency -= 1
        self.by_status["abandoned"] += 1

    def sample(self, now: float) -> None:
        """Record the number of responses, every `SAMPLE_INTERVAL`."""
        self._samples.append((now, self._answered))

    def report(self, by_id: dict[str, int]) -> StatsReport:
        """Return the current counters."""
        now = time.monotonic()
        return StatsReport(
            requests=self.requests,
            orders=self.requests + self.extra_orders,
            by_status=dict(self.by_status),
            by_id=by_id,
            concurrency=self.concurrency,
            peak_concurrency=self.peak,
            busiest_second=self.busiest_second,
            rate_mean=self._rate_mean(),
            rate_last_second=self._rate_last_second(now),
            first_request=_moment(self.first_at),
            last_request=_moment(self.last_at),
            open_connections=self.open_connections,
        )

    def _rate_mean(self) -> float:
        span = self._answered_at - self.first_at if self.first_at is not None else 0.0
        return self._answered / span if span > 0 else 0.0

    def _rate_last_second(self, now: float) -> float:
        """Responses in the last second, or all responses if there is less than a second of samples."""
        if len(self._samples) < (self._samples.maxlen or 0):
            return float(self._answered)
        since, before = self._samples[0]
        return (self._answered - before) / max(now - since, 1.0)


def _moment(monotonic: float | None) -> Moment | None:
    if monotonic is None:
        return None
    return Moment(monotonic, time.time() - (time.monotonic() - monotonic))
