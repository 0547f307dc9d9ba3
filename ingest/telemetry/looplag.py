"""Measures the lag of the event loop, which is the first sign of an overloaded process."""

import asyncio
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from ingest.telemetry.loopblocks import BlockWatch
from ingest.telemetry.shared_metrics import Histogram

_EVERY = 0.5


@contextmanager
def watching_loop(lag: Histogram, block_warning: float) -> Iterator[None]:
    """Measure the lag of the running loop, and warn when it is blocked for longer than `block_warning` seconds (0: never)."""
    every, watch = _EVERY, None
    with ExitStack() as stack:
        if block_warning:
            # A block counts from the time the loop was due, so a block of 1.5 times the threshold is always reported.
            every = min(_EVERY, block_warning / 2)
            watch = BlockWatch(block_warning)
            watch.start()
            stack.callback(watch.stop)
        measuring = asyncio.create_task(_measure(lag, every, watch))
        stack.callback(measuring.cancel)
        yield


async def _measure(lag: Histogram, every: float, watch: BlockWatch | None) -> None:
    while True:
        due = time.monotonic() + every
        if watch is not None:
            watch.expect(due)
        await asyncio.sleep(every)
        lag.observe(max(0.0, time.monotonic() - due))
