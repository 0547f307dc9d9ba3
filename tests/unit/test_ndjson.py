"""NDJSON as it is read from a body."""

import asyncio
import tracemalloc
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

from aiohttp.base_protocol import BaseProtocol
from aiohttp.streams import StreamReader

from ingest.api.http.memory_budget import MemoryBudget, RequestState
from ingest.api.http.requests import STATE, BodyLimits
from ingest.api.orders.ndjson import BATCH, Lines


class Body(dict[Any, Any]):
    """A request, as far as its body is concerned."""

    def __init__(self, content: StreamReader) -> None:
        connection = cast("Any", SimpleNamespace(transport="open", pace=SimpleNamespace(receiving=nullcontext)))
        super().__init__({STATE: RequestState(connection, MemoryBudget(8_000_000), caller="key")})
        self.content = content


async def test_what_has_come_of_a_body_is_divided_into_lines_a_piece_at_a_time() -> None:
    loop = asyncio.get_running_loop()
    content = StreamReader(BaseProtocol(loop), 2**20, loop=loop)
    content.feed_data(b"1234567\n" * 99_000)
    content.feed_eof()
    request: Any = Body(content)
    batches = Lines(request, BodyLimits(0, 5.0)).batches()
    tracemalloc.start()

    try:
        batch = await anext(batches)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(batch) == BATCH
    assert taken < 500_000
    assert sum([len(batch) async for batch in batches]) == 99_000 - BATCH
