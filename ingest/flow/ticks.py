"""Common instants for the regular work of a process, at which all of its sources do theirs.

Calls that several sources make at the same instant share a command to Redis. Processes have different instants, so that they do not
call in step.
"""

import asyncio
import math
import os
from contextvars import ContextVar

# Multiples of the golden ratio spread consecutive numbers evenly, here the processes of a host (Knuth, volume 3, 6.4).
_GOLDEN = 0.6180339887498949
# The part of an interval that is too short for a pause. A timer may end slightly early.
_TOO_SHORT = 0.1

process_number: ContextVar[int] = ContextVar("process_number")
"""Set by a simulation, which runs several processes in one and repeats their instants. Otherwise, the number is the process ID."""


def next_tick(now: float, every: float) -> float:
    """The next instant of those that are `every` seconds apart, unless it is very near: then the one after it.

    Args:
        now: monotonic seconds, as of the event loop.
        every: seconds.
    """
    phase = process_number.get(os.getpid()) * _GOLDEN % 1.0
    return (math.ceil(now / every - phase + _TOO_SHORT) + phase) * every


async def sleep_to_tick(every: float) -> None:
    """Sleep until the next instant, for up to 1.1 times `every` seconds."""
    now = asyncio.get_running_loop().time()
    await asyncio.sleep(next_tick(now, every) - now)
