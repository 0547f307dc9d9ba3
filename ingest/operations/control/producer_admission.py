"""Rejects orders of sources whose pause requires it, for the HTTP API, webhooks, the relay and `ingest enqueue`.

Programs that write to Redis themselves are not rejected. Their orders wait in the queue.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime

from ingest.domain.errors import QueueUnavailable
from ingest.domain.operating.controls import NO_CONTROLS, Controls
from ingest.queue.operate.controls import ControlRecord
from ingest.queue.produce.producer_errors import SourcePaused

# Seconds for which a reading counts as recent.
_RECENT = 1.0
# An order does not wait longer for a reading.
_LONGEST_READING = 0.5
# Producers try again after this time, even if the pause lasts longer, because it may be ended earlier.
_LONGEST_RETRY = 60.0


class ProducerAdmission:
    """Reads the controls once a second while there are orders. While Redis is unavailable, the last known ones apply.

    Args:
        record: of the controls.
        now: wall clock in UTC.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        record: ControlRecord,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._record = record
        self._now = now
        self._clock = clock
        self._controls: Controls = NO_CONTROLS
        self._read_at = float("-inf")
        self._turn = asyncio.Lock()

    async def admit(self, source: str) -> None:
        """Return if orders of a source are accepted.

        Raises:
            SourcePaused: they are not.
        """
        if self._clock() - self._read_at > _RECENT:
            await self._read()
        now = self._now()
        pause = self._controls.pause_of(source, now)
        if pause is None or not pause.rejects_orders:
            return
        left = _LONGEST_RETRY if pause.until is None else (pause.until - now).total_seconds()
        raise SourcePaused(pause.reason, min(_LONGEST_RETRY, max(1.0, left)))

    async def _read(self) -> None:
        async with self._turn:
            if self._clock() - self._read_at <= _RECENT:
                return
            # If Redis is unavailable, the order cannot be enqueued either. A producer may lack the right to the record.
            with suppress(QueueUnavailable, TimeoutError):
                async with asyncio.timeout(_LONGEST_READING):
                    self._controls = await self._record.read(self._controls)
            # After the reply, so that concurrent orders wait for it.
            self._read_at = self._clock()
