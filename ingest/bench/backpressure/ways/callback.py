"""A slot is taken before the task is made; the task's done callback gives it back."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.bench.backpressure.calls import Calls


async def run(calls: Calls, limit: int) -> None:
    """Make all calls."""
    slots = asyncio.Semaphore(limit)
    async with asyncio.TaskGroup() as tasks:
        for number in range(len(calls)):
            await slots.acquire()
            tasks.create_task(calls.make(number)).add_done_callback(lambda _: slots.release())
