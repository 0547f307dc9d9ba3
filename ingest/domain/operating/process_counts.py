"""The counts that a worker process reports to Redis for each of its sources, for the console and `ingest top`."""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

STORED = ("stored", "unchanged")
ENDED = (*STORED, "erased", "skipped", "dead")
"""The outcomes after which an order has left the queue."""
FAILED = ("retried", "dead")
_NONE: Mapping[str, int] = MappingProxyType({})


class ProcessCounts(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Totals since the `ingest worker` of the process began. A total that is lower than before has started again.

    Attributes:
        orders: settled deliveries by outcome, as in the metric `ingest_orders_total`.
        latency: stored orders by the upper bound of their time from enqueue to commit, in seconds.
        requests: requests to the external API by the class of their response, as in `ingest_upstream_request_seconds`.
        request_seconds: sum of their durations.
        in_flight: orders that are being fetched now.
        limit: most concurrent requests that are permitted now.
        rate: requests per second that the shared quota has granted, or 0 without a quota.
    """

    orders: Mapping[str, int] = _NONE
    latency: Mapping[str, int] = _NONE
    requests: Mapping[str, int] = _NONE
    request_seconds: float = 0.0
    in_flight: int = 0
    limit: int = 0
    rate: float = 0.0


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return how much each total has grown. A total that has started again counts from zero."""
    return {
        name: total - before.get(name, 0) if total >= before.get(name, 0) else total for name, total in after.items()
    }
