"""Every metric of the service, declared once.

Worker processes count the `WORKER_METRICS` in shared memory. The state of the queue is read from Redis at each scrape
(see `ingest.domain.deliveries.queue_state`).
"""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, get_type_hints

import msgspec

from ingest.domain.deliveries.delivery import RetryReason
from ingest.domain.source_name import UNNAMED
from ingest.telemetry.shared_metrics import Counter, Gauge, Histogram, SharedMetrics, Spec

# For a call of the external API or a transaction.
_CALL_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1, 0.125, 0.16, 0.2, 0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0, 6.3, 10.0, 30.0)  # fmt: skip
# Up to a day, because an order may wait behind a backlog.
_ORDER_BOUNDS = (0.005, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1, 0.16, 0.25, 0.4, 0.63, 1.0, 1.6, 2.5, 4.0, 6.3, 10.0, 16.0, 25.0, 40.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0, 21600.0, 86400.0)  # fmt: skip
# In steps of two and a half, because this is a second histogram of each source with a quota.
_WAIT_BOUNDS = (0.01, 0.025, 0.063, 0.16, 0.4, 1.0, 2.5, 6.3, 16.0, 60.0, 300.0, 1800.0, 21600.0)
_ROW_BOUNDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0)
_LAG_BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)

# Of an order or of the external API, with series for each source.
_by_source = partial(Spec, by_source=True)

ORDERS = _by_source(
    "ingest_orders_total", "counter", "Deliveries settled, by outcome. If the transform splits an order, each row counts. Another delivery of a dead order counts as dead again.", "outcome",
    ("stored", "unchanged", "erased", "skipped", "retried", "dead"),
)  # fmt: skip
ORDER_LATENCY = _by_source("ingest_order_latency_seconds", "histogram", "From enqueue to commit.", bounds=_ORDER_BOUNDS)
UPSTREAM_REQUEST = _by_source(
    "ingest_upstream_request_seconds", "histogram", "Requests to the external API.", "code",
    ("2xx", "3xx", "4xx", "429", "5xx", "timeout", "error"), _CALL_BOUNDS,
)  # fmt: skip
TRANSFORM = _by_source(
    "ingest_transform_seconds", "histogram", "One call of the transform, and the wait for it.", bounds=_CALL_BOUNDS
)
DOCUMENTS_NOT_KEPT = _by_source(
    "ingest_documents_not_kept_total", "counter", "Orders stored without their document because PostgreSQL cannot hold it.",
)  # fmt: skip
TEXTS_REPLACED = _by_source(
    "ingest_texts_replaced_total", "counter", "Documents in which U+FFFD replaced characters that PostgreSQL cannot store.",
)  # fmt: skip
TOTAL_DIFFERENCES = _by_source(
    "ingest_total_differences_total", "counter", "Documents whose lines do not add up to the document's own total.",
)  # fmt: skip
VALUES_OMITTED = _by_source(
    "ingest_values_omitted_total", "counter", "Optional values of documents that were left out because they do not fit the mapping.",
)  # fmt: skip
VERSIONS_AHEAD = _by_source(
    "ingest_versions_ahead_total", "counter", "Orders whose version is the time of the fetch because their updated_at is more than a day ahead of the clock.",
)  # fmt: skip
API_NOTICES = _by_source(
    "ingest_api_notices_total", "counter", "Responses of the external API with a notice for operators.", "notice",
    ("denied", "version", "deprecated"),
)  # fmt: skip
OUTDATED_DOCUMENTS = _by_source(
    "ingest_outdated_documents_total", "counter", "Orders stored from a document that was older than their webhook or list showed for a minute.",
)  # fmt: skip
STORE = Spec("ingest_store_seconds", "histogram", "One batch into PostgreSQL.", bounds=_CALL_BOUNDS)
STORE_ROWS = Spec("ingest_store_batch_rows", "histogram", "Rows of one batch.", bounds=_ROW_BOUNDS)
LAST_SUCCESS = _by_source(
    "ingest_last_success_timestamp_seconds", "gauge", "When a batch was last committed, as Unix time (0 before the first).",
    combine="max",
)  # fmt: skip
IN_FLIGHT = _by_source("ingest_in_flight", "gauge", "Orders being fetched.")
CONCURRENCY_LIMIT = _by_source(
    "ingest_concurrency_limit", "gauge", "Most requests to the external API that may be in flight."
)
RATE_LIMIT_WAIT = _by_source(
    "ingest_rate_limit_wait_seconds",
    "histogram",
    "How long requests waited for the shared quota.",
    bounds=_WAIT_BOUNDS,
)
UPSTREAM_QUOTA = _by_source(
    "ingest_upstream_quota",
    "gauge",
    "Share of the quota granted to the processes, in requests per second and concurrent requests (0 without a quota).",
    "kind",
    ("rate", "concurrency"),
)
CIRCUIT_OPEN = _by_source("ingest_circuit_open", "gauge", "Processes that wait for the external API to recover.")
CIRCUIT_UNPROVEN = _by_source(
    "ingest_circuit_unproven",
    "gauge",
    "Processes whose circuit is open because of responses that may concern single orders, before any order was delivered.",
)
REDELIVERIES = _by_source(
    "ingest_redeliveries_total", "counter", "Entries delivered again, by reason.", "reason",
    ("idle", "dead_consumer", "restart"),
)  # fmt: skip
RETRIES = _by_source(
    "ingest_retries_total", "counter", "Orders scheduled for another delivery, by reason.", "reason",
    tuple(RetryReason), from_start=False,
)  # fmt: skip
SOURCE_LAG = _by_source(
    "ingest_source_lag_seconds",
    "gauge",
    "Time since the position of polling: earlier changes of orders have been enqueued (0 without polling).",
    combine="max",
)
POLL_INTERVAL = _by_source(
    "ingest_source_poll_seconds",
    "gauge",
    "Configured pause between two readings of the list (0 without polling).",
    combine="max",
)
POLL_BEHIND = _by_source(
    "ingest_poll_behind_seconds",
    "gauge",
    "Time by which the times in the list are behind the clock of the shop (0 without polling).",
    combine="max",
)
POLLS = _by_source(
    "ingest_polls_total", "counter", "Readings of the list, by result.", "result", ("done", "failed"), from_start=False
)
POLLED_ORDERS = _by_source(
    "ingest_polled_orders_total", "counter", "Elements of the list that were read by polling, by result.", "result",
    ("enqueued", "waiting", "unchanged", "skipped", "unusable", "untimed", "left_out", "unread"), from_start=False,
)  # fmt: skip
LOOP_LAG = Spec(
    "ingest_event_loop_lag_seconds",
    "histogram",
    "Lag of the event loop.",
    bounds=_LAG_BOUNDS,
)
READY = Spec("ingest_ready", "gauge", "Processes that have reached Redis and PostgreSQL since they started.")
ACTIVITY = Spec(
    "ingest_activity_total",
    "counter",
    "Reads of the queue, renewals of the quota, and failed attempts while a server is unavailable.",
)
RESTARTS = Spec("ingest_process_restarts_total", "counter", "Processes that died and were restarted.")


class ProcessMetrics(msgspec.Struct, frozen=True):
    """The series of one worker process, without the series of its sources.

    The type of each contains the declaration of its metric.
    """

    loop_lag: Annotated[Histogram, LOOP_LAG]
    restarts: Annotated[Counter, RESTARTS]
    ready: Annotated[Gauge, READY]
    activity: Annotated[Counter, ACTIVITY]

    @classmethod
    def on(cls, shared_metrics: SharedMetrics, slot: int) -> "ProcessMetrics":
        """Return the series of the process in `slot`."""
        return cls(**{name: shared_metrics.series(slot, spec) for name, spec in _declared(cls).items()})


class WorkerMetrics(ProcessMetrics, frozen=True):
    """The series of one source in one worker process, and the series of the process, which its sources share."""

    orders: Annotated[dict[str, Counter], ORDERS]
    order_latency: Annotated[Histogram, ORDER_LATENCY]
    upstream_request: Annotated[dict[str, Histogram], UPSTREAM_REQUEST]
    transform: Annotated[Histogram, TRANSFORM]
    documents_not_kept: Annotated[Counter, DOCUMENTS_NOT_KEPT]
    texts_replaced: Annotated[Counter, TEXTS_REPLACED]
    total_differences: Annotated[Counter, TOTAL_DIFFERENCES]
    values_omitted: Annotated[Counter, VALUES_OMITTED]
    versions_ahead: Annotated[Counter, VERSIONS_AHEAD]
    api_notices: Annotated[dict[str, Counter], API_NOTICES]
    outdated_documents: Annotated[Counter, OUTDATED_DOCUMENTS]
    store: Annotated[Histogram, STORE]
    store_rows: Annotated[Histogram, STORE_ROWS]
    last_success: Annotated[Gauge, LAST_SUCCESS]
    in_flight: Annotated[Gauge, IN_FLIGHT]
    concurrency_limit: Annotated[Gauge, CONCURRENCY_LIMIT]
    circuit_open: Annotated[Gauge, CIRCUIT_OPEN]
    circuit_unproven: Annotated[Gauge, CIRCUIT_UNPROVEN]
    redeliveries: Annotated[dict[str, Counter], REDELIVERIES]
    retries: Annotated[dict[str, Counter], RETRIES]
    rate_limit_wait: Annotated[Histogram, RATE_LIMIT_WAIT]
    upstream_quota: Annotated[dict[str, Gauge], UPSTREAM_QUOTA]
    source_lag: Annotated[Gauge, SOURCE_LAG]
    poll_behind: Annotated[Gauge, POLL_BEHIND]
    poll_interval: Annotated[Gauge, POLL_INTERVAL]
    polls: Annotated[dict[str, Counter], POLLS]
    polled_orders: Annotated[dict[str, Counter], POLLED_ORDERS]

    @classmethod
    def on(cls, shared_metrics: SharedMetrics, slot: int, source: str = UNNAMED) -> "WorkerMetrics":
        """Return the series of a source in the process in `slot`.

        The source is exported from now on. Only that process may add one after the start.

        Raises:
            ConfigError: no further source can be added.
        """
        return cls(**{name: shared_metrics.series(slot, spec, source) for name, spec in WORKER_METRICS.items()})


def _declared(metrics: type[ProcessMetrics]) -> dict[str, Spec]:
    """Return the declarations of the metrics by field."""
    return {name: hint.__metadata__[0] for name, hint in get_type_hints(metrics, include_extras=True).items()}


WORKER_METRICS = _declared(WorkerMetrics)
"""Every metric of a worker, by field."""


def worker_shared_metrics(processes: int, sources: Sequence[str] = (UNNAMED,)) -> SharedMetrics:
    """Create the shared-memory metrics for this many worker processes, which begin with these sources."""
    return SharedMetrics(tuple(WORKER_METRICS.values()), processes, sources)
