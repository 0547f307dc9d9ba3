"""The metrics of `ingest relay`, declared once."""

from dataclasses import dataclass
from typing import Self

from ingest.telemetry.metrics import LOOP_LAG
from ingest.telemetry.shared_metrics import Counter, Gauge, Histogram, SharedMetrics, Spec

ROWS = Spec(
    "ingest_relay_rows_total", "counter", "Rows of the outbox that the relay is done with, by outcome.", "outcome",
    ("announced", "refused"),
)  # fmt: skip
PENDING = Spec("ingest_relay_pending", "gauge", "Rows of the outbox that wait, counted up to a million.")
LAG = Spec("ingest_relay_lag_seconds", "gauge", "Age of the first row of the outbox that waits; 0 if none does.")

RELAY_METRICS = (ROWS, PENDING, LAG, LOOP_LAG)


@dataclass(frozen=True, slots=True)
class RelayMetrics:
    """The series of one relay."""

    announced: Counter
    refused: Counter
    pending: Gauge
    lag: Gauge
    loop_lag: Histogram

    @classmethod
    def on(cls, shared_metrics: SharedMetrics) -> Self:
        """The series in the memory."""
        row = shared_metrics.row(0)
        rows = row.counter(ROWS)
        return cls(rows["announced"], rows["refused"], row.gauge(PENDING), row.gauge(LAG), row.histogram(LOOP_LAG)[""])


def relay_shared_metrics() -> SharedMetrics:
    """The memory of one relay."""
    return SharedMetrics(RELAY_METRICS, 1)
