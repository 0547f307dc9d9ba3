"""How much memory one `ingest worker` uses, by its settings: what its processes share is counted once."""

from dataclasses import dataclass
from typing import Self

# By `ingest bench pipeline --json` (`peak_pss_mb`); see docs/how-to/plan-capacity.md for the runs.
COMMAND = 45_000_000
"""The supervisor, the process that serves /metrics, and what all processes share."""
PROCESS = 25_000_000
"""A worker process without orders."""
ORDER = 50_000
"""An order in flight: its connection, buffers and state."""
DOCUMENTS = 3
"""How many times its size a document takes between fetch and commit."""
TYPICAL_DOCUMENT = 4_000


@dataclass(frozen=True, slots=True)
class WorkerMemory:
    """Bytes of one `ingest worker` with all its processes.

    Attributes:
        typical: with as many orders in flight as the settings allow, of a few kilobytes.
        with_full_batches: if as much waits to be stored as may.
        worst: if all documents in flight, too, are as large as they may be.
    """

    typical: int
    with_full_batches: int
    worst: int

    @classmethod
    def of(cls, processes: int, concurrency: int, batch_bytes: int, body_limit: int) -> Self:
        """By the settings of the worker, of which each process has its own orders and batches."""
        empty = worker_memory(processes, processes * concurrency, 0)
        batches = processes * DOCUMENTS * batch_bytes
        return cls(
            typical=worker_memory(processes, processes * concurrency, TYPICAL_DOCUMENT),
            with_full_batches=empty + batches,
            worst=empty + batches + processes * concurrency * body_limit,
        )


def worker_memory(processes: int, in_flight: int, order_bytes: int) -> int:
    """Bytes of one `ingest worker`, with these orders in flight in all its processes together."""
    return COMMAND + processes * PROCESS + in_flight * (ORDER + DOCUMENTS * order_bytes)
