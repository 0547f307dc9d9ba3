"""A batch as large as the limit; the next begins when the slowest of this one has ended."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.bench.backpressure.calls import Calls


async def run(calls: Calls, limit: int) -> None:
    """Make all calls."""
    for first in range(0, len(calls), limit):
        await asyncio.gather(*(calls.make(number) for number in range(first, min(first + limit, len(calls)))))
