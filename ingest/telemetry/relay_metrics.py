"""The metrics of `ingest relay`, declared once."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from ingest.telemetry.metrics import LOOP_LAG
from ingest.telemetry.shared_metrics import Counter, Gauge, Histogram, SharedMetrics, Spec

ROWS = Spec(
    "ingest_relay_rows_total", "counter", "Rows of the outbox that the relay has finished, by outcome.", "outcome",
    ("announced", "refused"), by_source=True,
)  # fmt: skip
PENDING = Spec("ingest_relay_pending", "gauge", "Waiting rows of the outbox, counted up to a million.")
LAG = Spec("ingest_relay_lag_seconds", "gauge", "Age of the first waiting row of the outbox, or 0 without one.")

RELAY_METRICS = (ROWS, PENDING, LAG, LOOP_LAG)


@dataclass(frozen=True, slots=True)
class RelayMetrics:
    """The series of one relay.

    Attributes:
        rows: by source, then by outcome.
    """

    rows: Mapping[str, Mapping[str, Counter]]
    pending: Gauge
    lag: Gauge
    loop_lag: Histogram

    @classmethod
    def on(cls, shared_metrics: SharedMetrics) -> Self:
        """Return the series in the memory."""
        rows = {source: shared_metrics.series(0, ROWS, source) for source in shared_metrics.sources()}
        pending, lag, loop_lag = (shared_metrics.series(0, spec) for spec in (PENDING, LAG, LOOP_LAG))
        return cls(rows, pending, lag, loop_lag)
