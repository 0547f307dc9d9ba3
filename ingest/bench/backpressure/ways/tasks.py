"""Ways with the means of asyncio, each of which makes all calls, at most `limit` of them concurrently."""

import asyncio

from ingest.bench.backpressure.calls import Calls


async def batches(calls: Calls, limit: int) -> None:
    """Make batches as large as the limit. A batch begins when the slowest call of the previous one has ended."""
    for first in range(0, len(calls), limit):
        await asyncio.gather(*(calls.make(number) for number in range(first, min(first + limit, len(calls)))))


async def inside(calls: Calls, limit: int) -> None:
    """Create all tasks immediately. Each task waits for the semaphore."""
    slots = asyncio.Semaphore(limit)

    async def call(number: int) -> None:
        async with slots:
            await calls.make(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(len(calls)):
            tasks.create_task(call(number))


async def callback(calls: Calls, limit: int) -> None:
    """Take a slot before creating a task. The task's done callback releases it."""
    slots = asyncio.Semaphore(limit)
    async with asyncio.TaskGroup() as tasks:
        for number in range(len(calls)):
            await slots.acquire()
            tasks.create_task(calls.make(number)).add_done_callback(lambda _: slots.release())


async def ending(calls: Calls, limit: int) -> None:
    """Take a slot before creating a task. The task's function releases it at the end."""
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
