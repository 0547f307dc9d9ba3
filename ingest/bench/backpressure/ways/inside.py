"""All tasks at once; each waits for the semaphore itself."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.bench.backpressure.calls import Calls


async def run(calls: Calls, limit: int) -> None:
    """Make all calls."""
    slots = asyncio.Semaphore(limit)

    async def call(number: int) -> None:
        async with slots:
            await calls.make(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(len(calls)):
            tasks.create_task(call(number))
