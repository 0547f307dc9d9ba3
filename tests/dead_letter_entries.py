"""Dead letters for tests: the fields of many, and their own connection."""

import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any

from ingest.queue.operate.failed.partition_dead_letters import PartitionDeadLetters
from ingest.queue.redis.connection import control_client

Fields = dict[bytes, bytes]
_CHUNK = 2_000


@asynccontextmanager
async def open_dead_letters(
    url: str, queue: str, *, on_wait: Callable[[str], None] = lambda _: None
) -> AsyncIterator[PartitionDeadLetters]:
    """The dead letters of a queue, with their own connection."""
    async with control_client(url) as client:
        yield PartitionDeadLetters(client, queue, on_wait=on_wait)


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
