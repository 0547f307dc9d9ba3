"""Moves entries to where their outcomes say: the retry set, the dead letters, or released to the group.

Each waits while Redis is unavailable. When the process dies here, the entry is where it was, or where it was moved to; never in
neither place.
"""

import asyncio
from collections.abc import Sequence

from ingest.domain.deliveries.delivery import Delivery, EntryRef
from ingest.domain.deliveries.outcome import DeadLetter, Retry
from ingest.flow.availability import until_available
from ingest.flow.held import Held
from ingest.flow.ports import Settling
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

_log = get_logger("settlement")
_Released = tuple[EntryRef, str | None]


class Moves:
    """The moves of one process's entries.

    Args:
        queue: where they are moved.
        held: holds each until it is moved.
        metrics: counts what was moved.
    """

    def __init__(self, queue: Settling, held: Held, metrics: WorkerMetrics) -> None:
        self._queue = queue
        self._held = held
        self._metrics = metrics
        # After a failover to a server that is behind, entries of two orders may have one ID.
        self._releasing: dict[_Released, Delivery] = {}
        self._release_turn = asyncio.Lock()
        self._released = 0

    async def retry(self, delivery: Delivery, outcome: Retry) -> None:
        """Schedule another delivery."""
        if await self._reschedule(delivery, outcome):
            _log.warning(
                "retry_scheduled", **_about(delivery), after=round(outcome.after, 3), reason=outcome.reason.value,
                error=outcome.error,
            )  # fmt: skip

    async def retry_quietly(self, delivery: Delivery, outcome: Retry) -> None:
        """The same for one of many, which the caller logs together."""
        await self._reschedule(delivery, outcome)

    async def dead_letter(self, delivery: Delivery, outcome: DeadLetter) -> None:
        """Move an entry to the dead letters."""
        moved = await until_available("redis", self._queue.dead_letter, delivery, outcome.reason, outcome.error)
        self._held.remove(delivery)
        if moved:
            self._metrics.orders["dead"].inc()
            _log.error("dead_lettered", **_about(delivery), reason=outcome.reason.value, error=outcome.error)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """Release entries; what is to be released while a call is on its way goes with the next."""
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
                # Those of other calls go with the next. Ours, if this one was cancelled, are still held, and are released
                # when the process stops.
                for name in ours:
                    batch.pop(name, None)
                self._releasing = batch | self._releasing
                raise
            for delivery in batch.values():
                self._held.remove(delivery)

    async def release_unprocessed(self, deliveries: Sequence[Delivery]) -> None:
        """Release what was read and is not in flight.

        Raises:
            Unavailable: if Redis cannot be used now.
        """
        await self._queue.release(deliveries)

    async def release_rest(self) -> int:
        """Release everything that is still held, at the end of the process; returns how many were still ours."""
        held = self._held.deliveries()
        return await until_available("redis", self._queue.release, held) if held else 0

    def log_released(self) -> None:
        """One line for all that was released since the last one."""
        if self._released:
            _log.info("entries_released", entries=self._released)
            self._released = 0

    async def _reschedule(self, delivery: Delivery, outcome: Retry) -> bool:
        moved = await until_available(
            "redis", self._queue.reschedule, delivery, outcome.after, outcome.attempt, outcome.reason, outcome.error
        )
        self._held.remove(delivery)
        if moved:
            self._metrics.orders["retried"].inc()
            self._metrics.retries[outcome.reason.value].inc()
        return moved


def _about(delivery: Delivery) -> dict[str, object]:
    return {"order_id": delivery.order_id, "entry_id": delivery.entry.id, "attempt": delivery.attempt}
