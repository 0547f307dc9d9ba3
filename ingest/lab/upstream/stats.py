"""Counts requests and answers."""

import time
from collections import Counter, deque
from collections.abc import Sequence

import msgspec

SAMPLE_INTERVAL = 0.1
"""Seconds between two samples of the count, for the rate over the last second."""


class Moment(msgspec.Struct, frozen=True):
    """One point in time on both clocks, in seconds."""

    monotonic: float
    unix: float


class StatsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The answer of `GET /stats`; only requests for orders count, not those to control routes.

    Attributes:
        requests: requests for orders that came in.
        orders: the orders that they asked for; a request to the list endpoint asks for several.
        by_status: how they ended: an HTTP status, `reset`, or `abandoned` where the client left before the
            answer. Adds up to `requests` less `concurrency`, if nothing was in flight at the last reset.
        by_id: requests per order ID, those to the list endpoint included; left out on request.
        concurrency: requests being answered now.
        peak_concurrency: the most there were at once.
        busiest_second: the most requests that came in within any second.
        rate_mean: answers per second between the first request and the last answer.
        rate_last_second: answers during the last second.
        first_request: when the first request came in.
        last_request: when the last request came in.
        open_connections: connections now, including the one of this request.
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
    """The running counts; each method is called once per request, and is cheap."""

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
        # When the requests of the last second came in.
        self._arrivals: deque[float] = deque()
        self._answered = 0
        self._answered_at = 0.0
        # (when, answers until then), a second and a bit back.
        self._samples: deque[tuple[float, int]] = deque(maxlen=round(1 / SAMPLE_INTERVAL) + 1)

    def arrived(self, key: bytes, now: float) -> None:
        """Count a request that came in."""
        self.requests += 1
        self.by_key[key] = self.by_key.get(key, 0) + 1
        self.concurrency += 1
        if self.concurrency > self.peak:  # noqa: PLR1730  a call of max() costs more
            self.peak = self.concurrency
        if self.first_at is None:
            self.first_at = now
        self.last_at = now
        arrivals = self._arrivals
        arrivals.append(now)
        while arrivals[0] <= now - 1.0:
            arrivals.popleft()
        self.busiest_second = max(self.busiest_second, len(arrivals))

    def arrived_list(self, keys: Sequence[bytes], now: float) -> None:
        """Count a request for several orders, or for none, that came in."""
        self.arrived(keys[0] if keys else b"", now)
        self.extra_orders += len(keys) - 1
        for key in keys[1:]:
            self.by_key[key] = self.by_key.get(key, 0) + 1

    def answered(self, label: str, now: float) -> None:
        """Count its answer."""
        self.concurrency -= 1
        self.by_status[label] += 1
        self._answered += 1
        self._answered_at = now

    def abandoned(self) -> None:
        """Count a request whose client left before the answer."""
        self.concurrency -= 1
        self.by_status["abandoned"] += 1

    def sample(self, now: float) -> None:
        """Record the count; to be called every `SAMPLE_INTERVAL`."""
        self._samples.append((now, self._answered))

    def report(self, by_id: dict[str, int]) -> StatsReport:
        """Return all counts as of now."""
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
        """Answers in the last second; with less than a second of samples, all answers so far."""
        if len(self._samples) < (self._samples.maxlen or 0):
            return float(self._answered)
        since, before = self._samples[0]
        return (self._answered - before) / max(now - since, 1.0)


def _moment(monotonic: float | None) -> Moment | None:
    if monotonic is None:
        return None
    return Moment(monotonic, time.time() - (time.monotonic() - monotonic))
