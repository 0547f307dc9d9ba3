"""Checks whether a queue that no worker reads still contains orders."""

from collections.abc import Iterator, Sequence

from ingest.domain.errors import QueueUnavailable
from ingest.operations.doctor.finding import Area, Checks, Finding
from ingest.queue.operate.removed_queues import RemovedQueue

_OF = Checks(Area.REDIS)


def findings(found: Sequence[RemovedQueue] | QueueUnavailable) -> Iterator[Finding]:
    """Report each queue with its orders."""
    match found:
        case QueueUnavailable():
            yield _OF.warning(f"queues of removed sources were not searched for: {found}", "check again later")
        case []:
            yield _OF.ok("workers of the configured sources read every queue that contains orders")
        case _:
            yield from map(_remaining, found)


def _remaining(queue: RemovedQueue) -> Finding:
    state = queue.state
    waiting = "an unknown number of" if state.depth is None else f"{state.depth:,}"
    orders = f"{waiting} waiting, {state.pending:,} pending, {state.retries:,} retries and {state.dead:,} dead letters"
    if queue.is_partition:
        return _OF.error(
            f"the partition {queue.queue} is not recorded, so that no worker reads it, and it still contains orders: {orders}",
            "run `ingest partitions set` with the present number, so that workers read it again",
        )
    if not queue.source:
        return _OF.warning(
            f"the queue {queue.queue} without a source still contains orders: {orders}",
            "run a worker without INGEST_SOURCES until they are processed, or enqueue them for a source and delete the keys"
            f" ingest:{{{queue.queue}}}:*",
        )
    return _OF.warning(
        f"the source {queue.source} is not in the sources file, and its queue {queue.queue} still contains orders: {orders}",
        f"add the source to the file again until they are processed, or delete the keys ingest:{{{queue.queue}}}:*",
    )
