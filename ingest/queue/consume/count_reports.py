"""Reports the counts of a worker process to Redis, for the console and `ingest top`.

Each process has one key for each of its sources, which expires by itself. Orders that were finished since the last report are also added to
the current minute of the source, see `ingest.queue.operate.minute_counts`. Reports are only sent when a count has changed, so that idle
processes send nothing. If a process dies here, its last counts are missing in the rates and in the history, and nothing else.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress

import msgspec
from redis.asyncio import Redis

from ingest.domain.errors import Unavailable
from ingest.domain.operating.process_counts import ENDED, FAILED, STORED, ProcessCounts, grown
from ingest.queue.layout.keys import Keys
from ingest.queue.operate.minute_counts import Count, add_counts
from ingest.queue.redis.connection import QueueRefused, translated
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
_EVERY = 2.0
_LIFETIME_MS = 3_600_000
_LAST_WAIT = 0.5


class CountReports:
    """The reports of one source in one process. A part of the worker, see `ingest.flow.ports.FleetPart`.

    Attributes:
        failing: the error of the reports, and when they began to fail, in monotonic seconds. None while they succeed.
    """

    def __init__(self, client: Redis, keys: Keys, consumer: str, count: Callable[[], ProcessCounts]) -> None:
        self._client = client
        self._keys = keys
        self._key = keys.counts + consumer
        self._count = count
        self._added = ProcessCounts()
        self._is_denied = False
        self._is_closing = False
        self.failing: tuple[str, float] | None = None

    async def run(self) -> None:
        """Report until cancelled."""
        # A process that has died in this place has added its own.
        self._added = self._count()
        try:
            await self._report()
        finally:
            if self._is_closing:
                # A worker may have stored all of its orders in its last seconds.
                with suppress(Unavailable, TimeoutError):
                    async with asyncio.timeout(_LAST_WAIT):
                        await self._add(self._count())

    async def _report(self) -> None:
        reported = ProcessCounts()
        while True:
            await asyncio.sleep(_EVERY)
            counts = self._count()
            if counts == reported:
                continue
            try:
                await self._add(counts)
                with translated():
                    await self._client.set(self._key, msgspec.json.encode(counts), px=_LIFETIME_MS)
                reported, self.failing = counts, None
            except Unavailable as error:
                if self.failing is None:
                    # These counts are the only regular write that Redis rejects when it is full.
                    _log.warning("counts_not_reported", key=self._key, problem=str(error))
                self.failing = str(error), time.monotonic() if self.failing is None else self.failing[1]

    async def _add(self, counts: ProcessCounts) -> None:
        """Add the orders that were finished since the last addition to the current minute."""
        new = grown(self._added.orders, counts.orders)
        sums = {
            count: sum(new.get(outcome, 0) for outcome in outcomes)
            for count, outcomes in ((Count.STORED, STORED), (Count.FAILED, FAILED), (Count.ENDED, ENDED))
        }
        changed = {count: number for count, number in sums.items() if number}
        if changed:
            try:
                await add_counts(self._client, self._keys, int(time.time()) // 60, changed)
            except QueueRefused as error:
                # An access control list of an earlier release does not permit the key.
                if not self._is_denied:
                    _log.warning("counts_not_reported", key=self._keys.minutes, problem=str(error))
                self._is_denied = True
        self._added = counts

    def close(self) -> None:
        """The last counts are added when the orders in flight have ended."""
        self._is_closing = True
