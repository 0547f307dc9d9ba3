"""How late the event loop runs what is due: the first sign of a process with too much to do."""

import asyncio

from ingest.telemetry.board import Histogram

_EVERY = 0.5


async def watch_loop_lag(lag: Histogram) -> None:
    """Measure twice a second, until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + _EVERY
        await asyncio.sleep(_EVERY)
        lag.observe(max(0.0, loop.time() - due))
