"""The demo's options, such as orders, workers and external API."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from ingest.lab.session import order_ids

_FASTEST, _SLOWEST = 0.1, 0.2  # seconds until a response, drawn uniformly

MEAN_LATENCY = (_FASTEST + _SLOWEST) / 2

# Faults of an ordinary day, unrelated to any order. Only the first request for each order can be faulty, so that
# the three quick tries of an attempt suffice and only a 503 leads to a scheduled retry.
API_OPTIONS = (
    "--latency", f"{_FASTEST}-{_SLOWEST}",
    "--error-rate", "0.005",
    "--reset-rate", "0.002",
    "--truncate-rate", "0.001",
    "--unavailable-rate", "0.002",
    "--retry-after", "1",
    "--fail-first", "1",
)  # fmt: skip

# Set when half of the orders are stored. Otherwise, a 503 near the end would delay the last order by a second and
# dominate the wall time. The other faults continue.
SECOND_HALF: dict[str, Any] = {"unavailable_rate": 0.0}


@dataclass(frozen=True, slots=True)
class Plan:
    """One run of the demo.

    Attributes:
        orders: number of orders to enqueue.
        processes: worker processes.
        concurrency: orders in flight in each process.
    """

    orders: int
    processes: int
    concurrency: int

    @property
    def in_flight(self) -> int:
        """The maximum number of orders in flight in all processes."""
        return self.processes * self.concurrency

    @property
    def ideal(self) -> float:
        """Seconds if every slot fetched without a pause, and at least the latency of one response."""
        return MEAN_LATENCY * max(1.0, self.orders / self.in_flight)

    def order_ids(self, bundled: Collection[str]) -> list[str]:
        """The IDs to enqueue: the bundled orders in file order, then generated IDs, which the API serves as well."""
        return order_ids(self.orders, bundled, "DEMO")

    def api_options(self, bundled: Collection[str]) -> list[str]:
        """The options of `ingest upstream`."""
        return [*API_OPTIONS, *(["--any-id"] if self.orders > len(bundled) else [])]
