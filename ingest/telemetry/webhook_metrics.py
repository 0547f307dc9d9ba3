"""The metric of webhooks, declared when `ingest api` starts and knows its sources."""

from collections.abc import Mapping, Sequence

from ingest.domain.webhook_result import WebhookResult
from ingest.telemetry.shared_metrics import Counter, Row, Spec

_SEPARATOR = ","


def webhooks_spec(sources: Sequence[str]) -> Spec:
    """Declare the metric for sources with these names."""
    return Spec(
        "ingest_webhooks_total", "counter", "Webhooks, by source and result.", "source,result",
        tuple(f"{source}{_SEPARATOR}{result}" for source in sources for result in WebhookResult),
    )  # fmt: skip


def webhook_counters(row: Row, spec: Spec) -> Mapping[tuple[str, str], Counter]:
    """Return the counters of one process by source and result."""
    counters = row.counter(spec)
    return {_labels(value): counter for value, counter in counters.items()}


def _labels(value: str) -> tuple[str, str]:
    source, _, result = value.partition(_SEPARATOR)
    return source, result
