"""Counts the completed work of a worker process, to detect a process that is alive but stuck.

It counts reads of the queue (even empty ones), renewals of the quota, and failed attempts while a server is unavailable. Requests,
batches and orders use separate counters. Heartbeats do not count because they continue in a stuck process.
"""

from contextvars import ContextVar

from ingest.telemetry.shared_metrics import Counter

# A context variable, because the code that waits for servers is called from nearly everywhere.
_counter: ContextVar[Counter | None] = ContextVar("activity", default=None)


def count_activity_on(counter: Counter) -> None:
    """Count on this counter, in the running task and in the tasks that it starts."""
    _counter.set(counter)


def record_activity() -> None:
    """Count one completed operation, whatever its result."""
    counter = _counter.get()
    if counter is not None:
        counter.inc()
