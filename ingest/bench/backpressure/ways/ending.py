"""A slot is taken before the task is made; the function that runs in it gives it back as it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ingest.bench.backpressure.calls import Calls


async def run(calls: Calls, limit: int) -> None:
    """Make all calls."""
    slots = asyncio.Semaphore(limit)

    async def call(number: int) -> None:
        try:
            await calls.make(number)
        finally:
            slots.release()

    async with asyncio.TaskGroup() as tasks:
        for number in range(len(calls)):
            await slots.acquire()
            tasks.create_task(call(number))
