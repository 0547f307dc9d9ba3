"""Announces orders until it is killed: `python announcer.py DURABILITY PREFIX FILE`, Redis' URL by environment.

Each confirmed order is written to FILE after the caller has received the confirmation.
"""

import asyncio
import os
import sys
from itertools import count

from ingest.domain.deliveries.accepted import Durability
from ingest.queue.produce.producer import Producer
from ingest.settings import load_settings

_CALLERS = 20


async def main(durability: str, prefix: str, path: str) -> None:
    """Announce with several concurrent callers, each of which announces one order after the other."""
    settings = load_settings()
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    numbers = count()

    async def announce(producer: Producer) -> None:
        while True:
            order_id = f"{prefix}-{next(numbers)}"
            await producer.enqueue(order_id)
            os.write(file, f"{order_id}\n".encode())

    url = settings.redis_url.get_secret_value()
    async with (
        Producer.connect(url, settings.stream, durability=Durability(durability)) as producer,
        asyncio.TaskGroup() as callers,
    ):
        for _ in range(_CALLERS):
            callers.create_task(announce(producer))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
