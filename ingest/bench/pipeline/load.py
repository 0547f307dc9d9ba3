"""The load: a program that announces orders at a rate.

`python -m ingest.bench.pipeline.load` reads a line of JSON (`Load`), writes `ready` when modules are imported and Redis
responds, waits for a line, and writes a line of JSON (`Announced`). Arrivals are a Poisson process on a schedule made
beforehand. Due orders are sent together, and a delay does not delay later orders. The notes contain a line for each
order with its ID and the times at which it was due and was sent.
"""

import asyncio
import gc
import os
import random
import sys
import time
from bisect import bisect_right
from itertools import accumulate
from pathlib import Path

import msgspec
import uvloop

from ingest.lab.programs import receive, reply, write_line
from ingest.queue.produce.producer import BATCH, Producer
from ingest.queue.redis.connection import control_client


class Load(msgspec.Struct, frozen=True):
    """The orders to be announced.

    Attributes:
        ids_file: file with an order ID on each line.
        notes_file: file for the notes, written at the end.
        stream: the queue's name.
        rate: orders per second.
        seed: seed of the arrivals.
    """

    ids_file: str
    notes_file: str
    stream: str
    rate: float
    seed: int

    async def send(self, producer: Producer, ids: list[str]) -> tuple[int, list[str]]:
        """Announce all orders, and return the number of batches and the notes."""
        draw = random.Random(self.seed)
        begin = time.time()
        arrivals = [begin + gaps for gaps in accumulate(draw.expovariate(self.rate) for _ in ids)]
        batches, moments = 0, list[float]()
        while len(moments) < len(ids):
            taken = len(moments)
            await asyncio.sleep(max(0.0, arrivals[taken] - time.time()))
            now = time.time()
            due = bisect_right(arrivals, now)
            if due > taken:
                moments += [now] * (due - taken)
                await producer.enqueue(ids[taken:due])
                batches += -(-(due - taken) // BATCH)
        lines = zip(ids, arrivals, moments, strict=True)
        return batches, [f"{order_id} {planned} {sent}\n" for order_id, planned, sent in lines]


class Announced(msgspec.Struct, frozen=True):
    """The number of batches in which all orders were sent, and the used CPU seconds."""

    batches: int
    cpu_seconds: float


async def _main(load: Load, ids: list[str]) -> None:
    async with control_client(os.environ["INGEST_REDIS_URL"]) as client:
        await client.ping()
        gc.collect()
        gc.freeze()
        write_line("ready")
        if not await asyncio.to_thread(sys.stdin.readline):
            return
        started = time.process_time()
        batches, notes = await load.send(Producer(client, load.stream), ids)
    Path(load.notes_file).write_text("".join(notes))  # noqa: ASYNC240  no other task is running
    reply(Announced(batches, time.process_time() - started))


if __name__ == "__main__":
    _load = receive(Load)
    uvloop.run(_main(_load, Path(_load.ids_file).read_text().split()))
