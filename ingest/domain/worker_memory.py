"""How much memory one `ingest worker` uses, by its settings: what its processes share is counted once.

The constants are the peaks (`peak_pss_mb`) of runs of `ingest bench pipeline --metrics` with 1 to 4 processes and 20 to 2,000 orders in flight; see
docs/how-to/plan-capacity.md.
"""

from dataclasses import dataclass
from typing import Self

COMMAND = 46_000_000
"""The supervisor, the process that serves /metrics, and what all processes share."""
PROCESS = 13_000_000
"""A worker process without orders."""
ORDER = 15_000
"""An order that waits for the external API: its connection, without TLS, and its state."""
DOCUMENTS = 3
"""How many times its size a document takes between fetch and commit."""
BATCH_ROWS = 500
"""Documents between fetch and commit in each process, at most: the default of INGEST_BATCH_ROWS."""
TYPICAL_DOCUMENT = 4_000


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Bytes of one `ingest worker` with all its processes.

    Attributes:
        typical: with as many orders in flight as the settings allow, of a few kilobytes.
        with_full_batches: if as much waits to be stored as may.
        worst: if, besides, all documents in flight are as large as they may be.
    """

    typical: int
    with_full_batches: int
    worst: int

    @classmethod
    def of(cls, processes: int, concurrency: int, batch_bytes: int, body_limit: int) -> Self:
        """By the settings of the worker, of which each process has its own orders and batches."""
        in_flight = processes * concurrency
        full = worker_memory(processes, in_flight, 0) + processes * DOCUMENTS * batch_bytes
        return cls(worker_memory(processes, in_flight, TYPICAL_DOCUMENT), full, full + in_flight * body_limit)


def worker_memory(processes: int, in_flight: int, order_bytes: int) -> int:
    """Bytes of one `ingest worker` with these orders in flight, in all its processes together."""
    documents = min(processes * BATCH_ROWS, in_flight) * DOCUMENTS * order_bytes
    return COMMAND + processes * PROCESS + in_flight * ORDER + documents
