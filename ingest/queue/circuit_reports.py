"""What worker processes say of their circuits, one key each: written where a circuit opens, and gone soon after it has closed.

A key expires by itself, so that a process that dies leaves nothing behind. Nobody acts on it: it is for `ingest status`.
"""

from dataclasses import asdict

import msgspec

from ingest.domain.open_circuit import OpenCircuit
from ingest.queue.keys import Keys

# There is no right to delete keys: see deploy/redis/users.acl.
_AT_ONCE = 1


def report_key(keys: Keys, consumer: str) -> str:
    """The key of one consumer's report."""
    return keys.circuit + consumer


def report_of(circuit: OpenCircuit | None, lifetime: float) -> tuple[bytes, int]:
    """What is written, and for how many milliseconds: nothing, for the shortest time, where the circuit is closed."""
    if circuit is None:
        return b"", _AT_ONCE
    return msgspec.json.encode(asdict(circuit)), max(1, int(lifetime * 1000))


def read_report(raw: bytes | None) -> OpenCircuit | None:
    """What was written, if that can be read."""
    try:
        return msgspec.json.decode(raw, type=OpenCircuit) if raw else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
