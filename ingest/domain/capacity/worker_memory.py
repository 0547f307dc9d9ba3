"""Estimates the memory of one `ingest worker` from its settings, and counts shared memory once.

The constants are the peaks (`peak_pss_mb`) of runs of `ingest bench pipeline --metrics` with 1 to 4 processes and 20 to 2,000 orders in flight
(see docs/explanation/capacity.md).
"""

from dataclasses import dataclass
from typing import Self

COMMAND = 46_000_000
"""The supervisor, the process that serves /metrics, and the memory shared by all processes."""
PROCESS = 13_000_000
"""A worker process without orders."""
ORDER = 15_000
"""The state of an order that waits for the external API, and its connection without TLS."""
DOCUMENTS = 3
"""Multiple of its size that a document takes in memory between fetch and commit."""
BATCH_ROWS = 500
"""Maximum number of documents between fetch and commit in each process (the default of INGEST_BATCH_ROWS)."""
TYPICAL_DOCUMENT = 4_000


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Bytes of one `ingest worker` with all its processes.

    Attributes:
        typical: with the maximum number of orders in flight, of a few kilobytes each.
        with_full_batches: with full buffers of documents to be stored.
        worst: with full buffers, and documents of the maximum size in flight.
    """

    typical: int
    with_full_batches: int
    worst: int

    @classmethod
    def of(cls, processes: int, concurrency: int, batch_bytes: int, body_limit: int) -> Self:
        """Return the estimate for these settings. Orders and batches are counted for each process."""
        in_flight = processes * concurrency
        full = worker_memory(processes, in_flight, 0) + processes * DOCUMENTS * batch_bytes
        return cls(worker_memory(processes, in_flight, TYPICAL_DOCUMENT), full, full + in_flight * body_limit)


def worker_memory(processes: int, in_flight: int, order_bytes: int) -> int:
    """Return the bytes of one `ingest worker` with this many orders in flight over all its processes."""
    documents = min(processes * BATCH_ROWS, in_flight) * DOCUMENTS * order_bytes
    return COMMAND + processes * PROCESS + in_flight * ORDER + documents
