"""The fields of dead letters, for tests that need many."""

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

Fields = dict[bytes, bytes]
_CHUNK = 2_000


def dead_fields(order_id: object, reason: str = "not_found", **fields: object) -> Fields:
    """The fields of a dead letter. Any of them can be given, and None leaves a field out."""
    now = int(time.time() * 1000)
    written = {
        "order_id": order_id,
        "reason": reason,
        "error": "HTTP 404",
        "attempts": 3,
        "first_enqueued_at": now - 60_000,
        "worker": "w",
        "dead_at": now,
        **fields,
    }
    return {name.encode(): _bytes(value) for name, value in written.items() if value is not None}


def _bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def chunks(entries: Iterable[Fields]) -> Iterator[list[Any]]:
    """The entries in lists short enough for a pipeline."""
    rest = iter(entries)
    while chunk := list(islice(rest, _CHUNK)):
        yield chunk
