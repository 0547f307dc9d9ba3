"""What worker processes report of outages, one key each: written while a circuit is open, and gone soon after it has closed.

A key expires by itself, so that a process that dies leaves nothing behind. Only `ingest status` reads it.
"""

import msgspec

from ingest.domain.fetch.outage import Outage
from ingest.queue.layout.keys import Keys

# There is no right to delete keys (deploy/redis/users.acl): an empty report that expires takes its place.
_SHORTEST_MS = 1


def report_key(keys: Keys, consumer: str) -> str:
    """The key of one consumer's report."""
    return keys.circuit + consumer


def report_of(outage: Outage | None, lifetime: float) -> tuple[bytes, int]:
    """The value to write, and its milliseconds. Without an outage, an empty value for the shortest time."""
    if outage is None:
        return b"", _SHORTEST_MS
    return msgspec.json.encode(outage), max(1, int(lifetime * 1000))


def read_report(raw: bytes | None) -> Outage | None:
    """The report, or None if there is none that can be read."""
    try:
        return msgspec.json.decode(raw, type=Outage) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
