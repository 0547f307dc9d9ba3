"""Reads the counts of one source in one worker process from its metrics."""

from collections.abc import Mapping

from ingest.domain.operating.process_counts import ProcessCounts
from ingest.telemetry.metrics import ORDER_LATENCY, WorkerMetrics
from ingest.telemetry.shared_metrics import Counter, Histogram

# The upper bounds of the buckets of the latency, and of the last one.
_BOUNDS = (*(f"{bound:g}" for bound in ORDER_LATENCY.bounds), "inf")


def process_counts(metrics: WorkerMetrics) -> ProcessCounts:
    """Return the current counts. Those that are zero are omitted."""
    seconds = sum(histogram.sum for histogram in metrics.upstream_request.values())
    return ProcessCounts(
        orders=_counted(metrics.orders),
        latency={
            bound: int(count) for bound, count in zip(_BOUNDS, metrics.order_latency.buckets, strict=True) if count
        },
        requests={code: int(total) for code, each in metrics.upstream_request.items() if (total := _total(each))},
        request_seconds=round(seconds, 3),
        in_flight=int(metrics.in_flight.value),
        limit=int(metrics.concurrency_limit.value),
        rate=metrics.upstream_quota["rate"].value,
    )


def _counted(counters: Mapping[str, Counter]) -> dict[str, int]:
    return {name: int(counter.value) for name, counter in counters.items() if counter.value}


def _total(histogram: Histogram) -> float:
    # Most codes of most sources have counted nothing.
    return sum(histogram.buckets) if histogram.sum else 0.0
