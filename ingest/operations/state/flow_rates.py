"""Calculates orders per second and latencies of one source from successive readings of its queue and of its workers' counts."""

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Self, TypeVar

from ingest.domain.deliveries.queue_state import QueueState
from ingest.domain.operating.process_counts import ENDED, STORED, ProcessCounts, grown

# Workers report their counts every two seconds, so that rates are averages over several reports.
_WINDOW = 10.0
_SHORTEST = 2.0
# After a longer time without a viewer, there are no rates until the second reading.
_LONGEST_GAP = 60.0

_Number = TypeVar("_Number", int, float)


def sum_of_known(values: Iterable[_Number | None]) -> _Number | None:
    """Return the sum of the values that are known, or None if none is."""
    known = [each for each in values if each is not None]
    return sum(known[1:], known[0]) if known else None


@dataclass(frozen=True, slots=True)
class Rates:
    """Averages over the last seconds. None is unknown, such as before the second reading.

    Attributes:
        arrived: orders per second that came into the queue, with replays.
        stored: orders per second with a new or unchanged row.
        retried: deliveries per second that were scheduled again.
        dead: orders per second that were dead-lettered.
        requests: requests per second to the external API.
        failed_requests: share of these requests without a response of 2xx or 3xx.
        request_seconds: mean duration of a request.
        median, p95: seconds from enqueue to commit.
        in_flight: orders that are being fetched.
        limit: concurrent requests that are permitted now, in all processes.
        granted: requests per second that the quota has granted to all processes, or 0 without a quota.
        buckets: stored orders of the window by the upper bound of their latency.
    """

    arrived: float | None = None
    stored: float | None = None
    retried: float | None = None
    dead: float | None = None
    requests: float | None = None
    failed_requests: float | None = None
    request_seconds: float | None = None
    median: float | None = None
    p95: float | None = None
    in_flight: int | None = None
    limit: int | None = None
    granted: float | None = None
    buckets: Mapping[str, int] = field(default_factory=dict, repr=False)

    @classmethod
    def total(cls, rates: Iterable[Self]) -> "Rates":
        """Return the rates of several sources together, without those that concern one external API only."""
        rates = list(rates)
        buckets = _merged(each.buckets for each in rates)
        return Rates(
            arrived=sum_of_known(each.arrived for each in rates),
            stored=sum_of_known(each.stored for each in rates),
            retried=sum_of_known(each.retried for each in rates),
            dead=sum_of_known(each.dead for each in rates),
            requests=sum_of_known(each.requests for each in rates),
            median=_quantile(buckets, 0.5),
            p95=_quantile(buckets, 0.95),
            in_flight=sum(each.in_flight or 0 for each in rates),
            buckets=buckets,
        )


NO_RATES = Rates()


@dataclass(frozen=True, slots=True)
class _Sample:
    """The totals at one reading, since the first one."""

    at: float
    in_queue: int | None
    orders: Mapping[str, int]
    latency: Mapping[str, int]
    requests: Mapping[str, int]
    request_seconds: float


class FlowRates:
    """The readings of one source in the last seconds."""

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()
        self._known: dict[str, ProcessCounts] = {}
        self._orders: Counter[str] = Counter()
        self._latency: Counter[str] = Counter()
        self._requests: Counter[str] = Counter()
        self._request_seconds = 0.0

    def add(
        self, now: float, queue: QueueState | None, counts: Mapping[str, ProcessCounts], alive: Collection[str]
    ) -> Rates:
        """Add a reading, and return the rates.

        Args:
            now: monotonic seconds.
            queue: the state of the source's queue, if it is known.
            counts: of each worker process that has reported.
            alive: names of the processes with a heartbeat.
        """
        if self._samples and now - self._samples[-1].at > _LONGEST_GAP:
            self._samples.clear()
        self._count(counts, alive)
        in_queue = None if queue is None else queue.in_queue
        sample = _Sample(
            now, in_queue, dict(self._orders), dict(self._latency), dict(self._requests), self._request_seconds
        )
        self._samples.append(sample)
        while len(self._samples) > 1 and now - self._samples[1].at >= _WINDOW:
            self._samples.popleft()
        return _between(self._samples[0], sample, counts.values())

    def _count(self, counts: Mapping[str, ProcessCounts], alive: Collection[str]) -> None:
        for name, after in counts.items():
            before = self._known.get(name)
            if before is not None:
                self._orders.update(grown(before.orders, after.orders))
                self._latency.update(grown(before.latency, after.latency))
                self._requests.update(grown(before.requests, after.requests))
                self._request_seconds += max(0.0, after.request_seconds - before.request_seconds)
        # The counts of an idle process expire, and an ended process does not return.
        self._known = {name: each for name, each in {**self._known, **counts}.items() if name in alive}


def _between(first: _Sample, last: _Sample, counts: Iterable[ProcessCounts]) -> Rates:
    seconds = last.at - first.at
    counts = list(counts)
    now = Rates(
        in_flight=sum(each.in_flight for each in counts),
        limit=sum(each.limit for each in counts),
        granted=sum(each.rate for each in counts),
    )
    if seconds < _SHORTEST:
        return now
    orders = {name: total - first.orders.get(name, 0) for name, total in last.orders.items()}
    requests = {name: total - first.requests.get(name, 0) for name, total in last.requests.items()}
    buckets = {name: grew for name, total in last.latency.items() if (grew := total - first.latency.get(name, 0))}
    finished = sum(orders.get(name, 0) for name in ENDED)
    arrived = None
    if first.in_queue is not None and last.in_queue is not None:
        # The orders that have come in are those that have gone out, and the growth of the queue.
        arrived = max(0.0, (last.in_queue - first.in_queue + finished) / seconds)
    sent = sum(requests.values())
    failed = sent - requests.get("2xx", 0) - requests.get("3xx", 0)
    return replace(
        now,
        arrived=arrived,
        stored=sum(orders.get(name, 0) for name in STORED) / seconds,
        retried=orders.get("retried", 0) / seconds,
        dead=orders.get("dead", 0) / seconds,
        requests=sent / seconds,
        failed_requests=failed / sent if sent else None,
        request_seconds=(last.request_seconds - first.request_seconds) / sent if sent else None,
        median=_quantile(buckets, 0.5),
        p95=_quantile(buckets, 0.95),
        buckets=buckets,
    )


def _quantile(buckets: Mapping[str, int], share: float) -> float | None:
    """The upper bound of the bucket that contains this share of the orders, or None without orders."""
    total = sum(buckets.values())
    if not total:
        return None
    ordered = sorted((float(bound), count) for bound, count in buckets.items())
    sums = accumulate(count for _, count in ordered)
    return next(bound for (bound, _), reached in zip(ordered, sums, strict=True) if reached >= share * total)


def _merged(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    merged: Counter[str] = Counter()
    for each in counts:
        merged.update(each)
    return dict(merged)
