"""Writes the results of a reconciliation for Prometheus, in the format that its collector of text files reads."""

import time

from ingest.domain.orders.list_reconciliation import ListReconciliation


def metrics_of(report: ListReconciliation, source: str) -> str:
    """Return the metrics of one source. The time shows whether reconciliations still run."""
    differences = [
        f'ingest_reconcile_differences{{source="{source}",difference="{kind.value}"}} {count}'
        for kind, count in report.differences.items()
    ]
    lines = [
        "# HELP ingest_reconcile_differences Orders that differ between the shop's list and the database.",
        "# TYPE ingest_reconcile_differences gauge",
        *differences,
        "# HELP ingest_reconcile_listed_orders Orders in the shop's list of the period.",
        "# TYPE ingest_reconcile_listed_orders gauge",
        f'ingest_reconcile_listed_orders{{source="{source}"}} {report.listed}',
        "# HELP ingest_reconcile_completed_timestamp_seconds When the last reconciliation was completed.",
        "# TYPE ingest_reconcile_completed_timestamp_seconds gauge",
        f'ingest_reconcile_completed_timestamp_seconds{{source="{source}"}} {time.time():.0f}',
    ]
    return "\n".join(lines) + "\n"
