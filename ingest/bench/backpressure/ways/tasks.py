"""Ways that asyncio itself offers; each makes all calls, at most `limit` at a time."""

import asyncio

from ingest.bench.backpressure.calls import Calls


async def batches(calls: Calls, limit: int) -> None:
    """A batch as large as the limit; the next begins when the slowest call of this one has ended."""
    for first in range(0, len(calls), limit):
        await asyncio.gather(*(calls.make(number) for number in range(first, min(first + limit, len(calls)))))


async def inside(calls: Calls, limit: int) -> None:
    """All tasks at once; each waits for the semaphore itself."""
    slots = asyncio.Semaphore(limit)

    async def call(number: int) -> None:
        async with slots:
            await calls.make(number)

    async with asyncio.TaskGroup() as tasks:
        for number in range(len(calls)):
            tasks.create_task(call(number))


async def callback(calls: Calls, limit: int) -> None:
    """A slot is taken before the task is created; the task's done callback releases it."""
    slots = asyncio.Semaphore(limit)
    async with asyncio.TaskGroup() as tasks:
        for number in range(len(calls)):
            await slots.acquire()
            tasks.create_task(calls.make(number)).add_done_callback(lambda _: slots.release())


async def ending(calls: Calls, limit: int) -> None:
    """A slot is taken before the task is created; the function that runs in it releases it as it ends."""
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
