"""The queue and the orders of one source, for the routes of `/v1/` and the pages of the console."""

from collections.abc import Mapping
from dataclasses import dataclass

from ingest.domain.deliveries.entry_kind import EntryKind
from ingest.operations.failed_orders.entries import DeadLetterEntries, FailedEntries, RetryEntries
from ingest.operations.stored_orders.orders import Orders
from ingest.queue.operate.failed.dead_letters import DeadLetters
from ingest.queue.operate.failed.retries import Retries
from ingest.queue.operate.monitor import Monitor
from ingest.queue.produce.idempotent_calls import IdempotentCalls
from ingest.queue.produce.producer import Producer
from ingest.store.audit import AuditLog
from ingest.store.job_output import JobOutput
from ingest.store.jobs import Jobs


@dataclass(frozen=True, slots=True)
class SourceConnections:
    """The queue and the orders of one source, through the connections of the process."""

    producer: Producer
    calls: IdempotentCalls
    orders: Orders
    monitor: Monitor
    retries: Retries
    dead_letters: DeadLetters
    audit_log: AuditLog
    jobs: Jobs
    job_output: JobOutput

    @property
    def entries(self) -> Mapping[EntryKind, FailedEntries]:
        """The dead letters and the retries."""
        return {
            EntryKind.DEAD_LETTERS: DeadLetterEntries(self.dead_letters),
            EntryKind.RETRIES: RetryEntries(self.retries),
        }
