"""Moves entries by their outcomes: to the retry set, to the dead letters, or back to the group.

Each move waits while Redis is unavailable. If the process dies here, the entry is either in its old place or in its new one.
"""

import asyncio
from collections.abc import Sequence

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.deliveries.outcome import DeadLetter, Retry
from ingest.domain.orders.order_history import HistoryEvent
from ingest.domain.trace_context import log_fields_of
from ingest.flow.availability import until_available
from ingest.flow.held import Held
from ingest.flow.ports import Settling
from ingest.flow.settle.recorder import Recorder
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

_log = get_logger("settlement")
_Released = tuple[EntryRef, str | None]


class Moves:
    """The moves of one process's entries.

    Args:
        recorder: of their history, if it is kept.
    """

    def __init__(self, queue: Settling, held: Held, metrics: WorkerMetrics, recorder: Recorder | None = None) -> None:
        self._recorder = recorder
        self._queue = queue
        self._held = held
        self._metrics = metrics
        # After a failover to a server that is behind, entries of two orders may have one ID.
        self._releasing: dict[_Released, Delivery] = {}
        self._release_turn = asyncio.Lock()
        self._released = 0

    async def retry(self, delivery: Delivery, outcome: Retry) -> None:
        """Schedule another delivery."""
        if await self.reschedule(delivery, outcome):
            _log.warning(
                "retry_scheduled", **_about(delivery), after=round(outcome.after, 3), reason=outcome.reason.value,
                error=outcome.error,
            )  # fmt: skip

    async def reschedule(self, delivery: Delivery, outcome: Retry) -> bool:
        """Schedule another delivery without a log line, and return False if another consumer has claimed the entry."""
        moved = await until_available(
            "redis", self._queue.reschedule, delivery, outcome.after, outcome.attempt, outcome.reason, outcome.error
        )
        self._held.remove(delivery)
        if moved:
            self._metrics.orders["retried"].inc()
            self._metrics.retries[outcome.reason.value].inc()
            self._record(delivery, HistoryEvent.RETRIED, outcome, outcome.after)
        return moved

    async def dead_letter(self, delivery: Delivery, outcome: DeadLetter) -> None:
        """Move an entry to the dead letters."""
        moved = await until_available("redis", self._queue.dead_letter, delivery, outcome.reason, outcome.error)
        self._held.remove(delivery)
        if moved:
            self._metrics.orders["dead"].inc()
            self._record(delivery, HistoryEvent.DEAD_LETTERED, outcome)
            _log.error("dead_lettered", **_about(delivery), reason=outcome.reason.value, error=outcome.error)

    def _record(
        self, delivery: Delivery, event: HistoryEvent, outcome: Retry | DeadLetter, after: float | None = None
    ) -> None:
        if self._recorder is not None:
            about = {"reason": outcome.reason.value, "error": outcome.error}
            self._recorder.add(delivery, event, outcome.took, after=after, **about)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Release entries. Entries that are released during a call go with the next call."""
        ours = {(delivery.entry, delivery.order_id): delivery for delivery in deliveries}
        self._held.mark_leaving(deliveries)
        self._releasing |= ours
        async with self._release_turn:
            if self._releasing.keys().isdisjoint(ours):
                return
            batch, self._releasing = self._releasing, {}
            try:
                self._released += await until_available("redis", self._queue.release, list(batch.values()))
            except BaseException:
                # The entries of other calls go with the next call. If this call was cancelled, its entries are still held, and are
                # released when the process stops.
                for name in ours:
                    batch.pop(name, None)
                self._releasing = batch | self._releasing
                raise
            for delivery in batch.values():
                self._held.remove(delivery)

    async def release_unprocessed(self, deliveries: Sequence[Delivery]) -> None:
        """Release entries that were read and are not in flight.

        Raises:
            Unavailable: if Redis is unavailable.
        """
        await self._queue.release(deliveries)

    async def release_rest(self) -> int:
        """Release all held entries at the end of the process, and return how many this consumer still held."""
        held = self._held.deliveries()
        return await until_available("redis", self._queue.release, held) if held else 0

    def log_released(self) -> None:
        """Log one line for all entries released since the last one, because an outage is a single state change."""
        if self._released:
            _log.info("entries_released", entries=self._released)
            self._released = 0


def _about(delivery: Delivery) -> dict[str, object]:
    about = {"order_id": delivery.order_id, "entry_id": delivery.entry.id, "attempt": delivery.attempt}
    return {**about, **log_fields_of(delivery.traceparent())}
