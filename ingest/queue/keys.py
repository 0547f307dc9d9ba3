"""The names of a queue's keys; braces keep them in one Cluster slot."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of one queue.

    Attributes:
        stream: the entries; one is deleted when acked, so its length is the backlog.
        retry: sorted set of entries that wait, by due time in ms.
        retry_entries: hash with the fields of those entries.
        dead: the dead-letter stream.
        receipts: prefix of the keys that remember which batches of a producer have been taken in.
    """

    stream: str
    retry: str
    retry_entries: str
    dead: str
    receipts: str

    @classmethod
    def of(cls, queue: str) -> "Keys":
        """The keys of the queue with that name."""
        base = f"ingest:{{{queue}}}"
        return cls(f"{base}:stream", f"{base}:retry", f"{base}:retry-entries", f"{base}:dead", f"{base}:receipt:")
