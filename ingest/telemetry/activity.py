"""Counts what a worker process completes, so that one that lives and completes nothing is found.

A read of the queue counts, with entries or without; a renewal of the quota; each failed attempt while a server is unavailable. Requests,
batches and orders have counters of their own. Heartbeats do not count: they go on while everything else stands still.
"""

from contextvars import ContextVar

from ingest.telemetry.shared_metrics import Counter

# Of the process, given to all its tasks: what waits for a server is deep below, and is called by nearly everything.
_counter: ContextVar[Counter | None] = ContextVar("activity", default=None)


def count_activity_on(counter: Counter) -> None:
    """Count on this counter, in the running task and in those that it starts."""
    _counter.set(counter)


def record_activity() -> None:
    """Something was completed, whatever its result."""
    counter = _counter.get()
    if counter is not None:
        counter.inc()
