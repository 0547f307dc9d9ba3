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
        receipts: prefix of the keys that remember what was done already: batches of a producer, pages of a replay or drop.
        alive: prefix, by group, of the sorted set of consumers by the time (ms) until which they count as alive.
        standing: prefix, by group, of the sorted set of consumers by the time (ms) from which they may judge others.
        probe: never exists; commands are tried on it.
    """

    stream: str
    retry: str
    retry_entries: str
    dead: str
    receipts: str
    alive: str
    standing: str
    probe: str

    @classmethod
    def of(cls, queue: str) -> "Keys":
        """The keys of the queue with that name."""
        base = f"ingest:{{{queue}}}"
        return cls(
            stream=f"{base}:stream",
            retry=f"{base}:retry",
            retry_entries=f"{base}:retry-entries",
            dead=f"{base}:dead",
            receipts=f"{base}:receipt:",
            alive=f"{base}:alive:",
            standing=f"{base}:standing:",
            probe=f"{base}:probe",
        )
