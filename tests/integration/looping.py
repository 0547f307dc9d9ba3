"""An event loop of a kind under watch, as a process for tests: `python looping.py KIND BLOCK_WARNING`.

It ends when its stdin is closed. It prints lines to stdout, and logs JSON to stderr.
"""

import asyncio
import os
import re
import sys
import threading
import time
from collections.abc import Awaitable, Callable

import uvloop

from ingest.telemetry.logs import setup_logs
from ingest.telemetry.loopblocks import BlockWatch
from ingest.telemetry.looplag import watching_loop
from ingest.telemetry.metrics import WorkerMetrics, worker_shared_metrics

# Of the kinds, where nothing is watched.
_UNWATCHED = 0.1
AGAIN_AFTER = 1.2


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def holds_the_loop(seconds: float) -> None:
    """A library without asyncio that waits for its server."""
    time.sleep(seconds)


def takes_all_cpu(pattern: re.Pattern[str], length: int) -> float:
    """Make a C call that holds the GIL until its end, twice as long with each character, and return its seconds."""
    began = time.monotonic()
    pattern.match("a" * length + "!")
    return time.monotonic() - began


async def idles(_threshold: float) -> None:
    """Wait for what never comes."""
    while True:
        say("turn")
        await asyncio.sleep(0.02)


async def toils(_threshold: float) -> None:
    """Have more to do than one core can, in short turns."""
    while True:
        until = time.monotonic() + 0.02
        while time.monotonic() < until:
            pass
        say("turn")
        await asyncio.sleep(0)


async def waits_once(threshold: float) -> None:
    """Be blocked once, by a call that waits."""
    await asyncio.sleep(threshold)
    holds_the_loop(3 * threshold)
    await idles(threshold)


async def computes(threshold: float) -> None:
    """Be blocked by calls that compute, ever longer, without letting go of the GIL."""
    pattern, length = re.compile(r"(a+)+$"), 16
    while True:
        length += takes_all_cpu(pattern, length) < 8 * threshold
        await asyncio.sleep(threshold / 2)


async def waits_often(threshold: float) -> None:
    """Be blocked for as long as it is watched, with a breath in between."""
    while True:
        holds_the_loop(3 * threshold)
        await asyncio.sleep(threshold)


KINDS: dict[str, Callable[[float], Awaitable[None]]] = {
    kind.__name__: kind for kind in (idles, toils, waits_once, computes, waits_often)
}


async def stays(watch: BlockWatch, threshold: float) -> None:
    """Signal to the watch that the loop runs."""
    while True:
        watch.expect(time.monotonic() + threshold / 2)
        await asyncio.sleep(threshold / 2)


async def main(kind: str, block_warning: float) -> None:
    threshold = block_warning or _UNWATCHED
    done = asyncio.Event()
    asyncio.get_running_loop().add_reader(0, done.set)
    metrics = WorkerMetrics.on(worker_shared_metrics(1), 0)
    if kind == "waits_often":
        watch = BlockWatch(threshold, again_after=AGAIN_AFTER)
        watch.start()
        tasks = [asyncio.create_task(stays(watch, threshold)), asyncio.ensure_future(KINDS[kind](threshold))]
        await done.wait()
        watch.stop()
    else:
        with watching_loop(metrics.loop_lag, block_warning):
            say("threads", threading.active_count())
            tasks = [asyncio.ensure_future(KINDS[kind](threshold))]
            await done.wait()
    for task in tasks:
        task.cancel()
    say("threads", threading.active_count())


if __name__ == "__main__":
    setup_logs("json", "info")
    uvloop.run(main(sys.argv[1], float(sys.argv[2])))
