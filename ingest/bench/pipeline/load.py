"""The load: a program that announces orders, all at once or as they would arrive.

    python -m ingest.bench.pipeline.load IDS_FILE NOTES_FILE QUEUE RATE SEED

It writes `ready` when everything is imported and Redis answers, waits for a line, and writes `done` with the number of
batches that it has sent and the CPU seconds that this took. Arrivals are a Poisson process on a schedule made beforehand: what is
due is sent together, and one delay does not delay what follows. The notes have a line for each order: its ID, when it was due, and
when it was sent.
"""

import asyncio
import gc
import os
import random
import sys
import time
from bisect import bisect_right
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import uvloop

from ingest.queue.connection import control_client
from ingest.queue.producer import BATCH, Producer


@dataclass(frozen=True, slots=True)
class Load:
    """The orders to be announced.

    Attributes:
        rate: orders per second; 0 for all of them at once.
    """

    ids: list[str]
    rate: float
    seed: int

    async def send(self, producer: Producer) -> tuple[int, list[str]]:
        """Announce all of them; return in how many batches, and the notes."""
        if not self.rate:
            sent = time.time()
            await producer.enqueue(self.ids)
            return _batches(len(self.ids)), [f"{order_id} {sent} {sent}\n" for order_id in self.ids]
        draw = random.Random(self.seed)
        begin = time.time()
        arrivals = [begin + gaps for gaps in accumulate(draw.expovariate(self.rate) for _ in self.ids)]
        batches, moments = 0, list[float]()
        while len(moments) < len(self.ids):
            taken = len(moments)
            await asyncio.sleep(max(0.0, arrivals[taken] - time.time()))
            now = time.time()
            due = bisect_right(arrivals, now)
            if due > taken:
                moments += [now] * (due - taken)
                await producer.enqueue(self.ids[taken:due])
                batches += _batches(due - taken)
        lines = zip(self.ids, arrivals, moments, strict=True)
        return batches, [f"{order_id} {planned} {sent}\n" for order_id, planned, sent in lines]


def _batches(count: int) -> int:
    return -(-count // BATCH)


async def _main(load: Load, notes: Path, queue: str) -> None:
    async with control_client(os.environ["INGEST_REDIS_URL"]) as client:
        await client.ping()
        gc.collect()
        gc.freeze()
        _say("ready")
        if not await asyncio.to_thread(sys.stdin.readline):
            return
        started = time.process_time()
        batches, lines = await load.send(Producer(client, queue))
    notes.write_text("".join(lines))  # noqa: ASYNC240  nothing else goes on
    _say(f"done {batches} {time.process_time() - started}")


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _ids, _notes, _queue, _rate, _seed = sys.argv[1:]
    uvloop.run(_main(Load(Path(_ids).read_text().split(), float(_rate), int(_seed)), Path(_notes), _queue))
