"""Reports the counts of a worker process to Redis, for the console and `ingest top`.

Each process has one key for each of its sources, which expires by itself. It is only written when a count has changed, so that idle
processes send nothing. If a process dies here, its last counts are missing in the rates, and nothing else.
"""

import asyncio
import time
from collections.abc import Callable

import msgspec
from redis.asyncio import Redis

from ingest.domain.errors import Unavailable
from ingest.domain.operating.process_counts import ProcessCounts
from ingest.queue.redis.connection import translated
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
_EVERY = 2.0
_LIFETIME_MS = 3_600_000


class CountReports:
    """The reports of one source in one process. A part of the worker, see `ingest.flow.ports.FleetPart`.

    Attributes:
        failing: the error of the reports, and when they began to fail, in monotonic seconds. None while they succeed.
    """

    def __init__(self, client: Redis, key: str, count: Callable[[], ProcessCounts]) -> None:
        self._client = client
        self._key = key
        self._count = count
        self.failing: tuple[str, float] | None = None

    async def run(self) -> None:
        """Report until cancelled."""
        reported = ProcessCounts()
        while True:
            await asyncio.sleep(_EVERY)
            counts = self._count()
            if counts == reported:
                continue
            try:
                with translated():
                    await self._client.set(self._key, msgspec.json.encode(counts), px=_LIFETIME_MS)
                reported, self.failing = counts, None
            except Unavailable as error:
                if self.failing is None:
                    # These counts are the only regular write that Redis rejects when it is full.
                    _log.warning("counts_not_reported", key=self._key, problem=str(error))
                self.failing = str(error), time.monotonic() if self.failing is None else self.failing[1]

    def close(self) -> None:
        """Reports do not delay a stop."""
