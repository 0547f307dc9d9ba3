"""Applies outcomes: the only room of the flow that stores, acks, reschedules and buries.

Rows are written by natural batching: while one batch commits, the next gathers; a lone order waits for nobody. The ack
follows the commit. If the process dies between the two, the entries come again and change nothing; in the other
order they would be lost.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import assert_never

import msgspec

from ingest.domain.delivery import Bury, DeadReason, Delivery, Effect, OrderRow, Outcome, RetryLater, Store
from ingest.domain.errors import RowsRefused
from ingest.flow.lease import Leases
from ingest.flow.patience import until_available
from ingest.flow.seams import Queue
from ingest.flow.seams import Store as OrderStore
from ingest.telemetry.logs import get_logger
from ingest.telemetry.metrics import WorkerMetrics

_log = get_logger("settlement")

# With a backlog: a batch costs both sides as much as some twenty rows, and slots do not wait for it.
_GATHER = 0.015

_OUTCOME = {
    Effect.INSERTED: "stored",
    Effect.CHANGED: "stored",
    Effect.UNCHANGED: "unchanged",
    Effect.ERASED: "erased",
}


class _Item(msgspec.Struct, frozen=True, gc=False):
    delivery: Delivery
    row: OrderRow


class Settlement:
    """Settles deliveries; `run` must be running while `settle` is called.

    Args:
        queue: where entries are finished and moved.
        store: where orders go.
        leases: whose entries are held until settled.
        metrics: outcomes, latencies, batches.
        batch_rows: most rows between fetch and ack; beyond that, `settle` waits.
        now: wall clock in Unix seconds, for latencies.
    """

    def __init__(
        self,
        queue: Queue,
        store: OrderStore,
        leases: Leases,
        metrics: WorkerMetrics,
        batch_rows: int,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._queue = queue
        self._store = store
        self._leases = leases
        self._metrics = metrics
        self._now = now
        self._most = batch_rows
        self._unsettled = 0
        self._room = asyncio.Event()
        self._gathered: list[_Item] = []
        self._wake = asyncio.Event()
        self._finishing = False
        self._gather_for = 0.0

    async def settle(self, delivery: Delivery, outcome: Outcome) -> None:
        """Apply an outcome. An order to store is taken over: it is stored and acked with its batch."""
        match outcome:
            case Store(order, fetched_at):
                while self._unsettled >= self._most:
                    self._room.clear()
                    await self._room.wait()
                self._unsettled += 1
                row = OrderRow(order, fetched_at, delivery.attempt, delivery.enqueued_at)
                self._gathered.append(_Item(delivery, row))
                self._wake.set()
            case RetryLater():
                await self._reschedule(delivery, outcome)
            case Bury(reason, error):
                await self._bury(delivery, reason, error)
            case _:
                assert_never(outcome)

    def finish(self) -> None:
        """Let `run` return once everything gathered is stored and acked."""
        self._finishing = True
        self._wake.set()

    def expect_more(self, *, backlog: bool) -> None:
        """Tell whether a backlog waits: then a row may wait a moment for others, since it is the queue that counts."""
        self._gather_for = _GATHER if backlog else 0.0

    async def run(self) -> None:
        """Store and ack batches until `finish`. Cancelled, it drops what is not acked; that stays pending."""
        while not (self._finishing and not self._gathered):
            await self._wake.wait()
            if self._gather_for and not self._finishing:
                await asyncio.sleep(self._gather_for)
            self._wake.clear()
            items, self._gathered = self._gathered, []
            await self._leases.confirm()
            stored = await self._commit(self._ours(items))
            await self._leases.confirm()
            await self._ack(self._ours(stored))
            self._unsettled -= len(items)
            self._room.set()

    def _ours(self, items: Sequence[_Item]) -> list[_Item]:
        return [item for item in items if self._leases.holds(item.delivery.entry_id)]

    async def _commit(self, items: Sequence[_Item]) -> list[_Item]:
        """Store the items, and return those that are; one that PostgreSQL refuses is found by halving."""
        if not items:
            return []
        try:
            effects = await until_available("postgres", self._upsert, [item.row for item in items])
        except RowsRefused as error:
            if len(items) == 1:
                await self._bury(items[0].delivery, DeadReason.UNSTORABLE, str(error))
                return []
            half = len(items) // 2
            return [*await self._commit(items[:half]), *await self._commit(items[half:])]
        now = self._now()
        for effect, count in Counter(effects).items():
            self._metrics.orders[_OUTCOME[effect]].inc(count)
        self._metrics.order_latency.observe_all([max(0.0, now - item.delivery.enqueued_at) for item in items])
        return list(items)

    async def _upsert(self, rows: Sequence[OrderRow]) -> list[Effect]:
        started = time.monotonic()
        effects = await self._store.upsert(rows)
        self._metrics.store.observe(time.monotonic() - started)
        self._metrics.store_rows.observe(len(rows))
        return effects

    async def _ack(self, stored: Sequence[_Item]) -> None:
        if not stored:
            return
        entry_ids = [item.delivery.entry_id for item in stored]
        await until_available("redis", self._queue.ack, entry_ids)
        for entry_id in entry_ids:
            self._leases.drop(entry_id)

    async def _reschedule(self, delivery: Delivery, outcome: RetryLater) -> None:
        arguments = (delivery, outcome.after, outcome.attempt)
        moved = await until_available("redis", self._queue.reschedule, *arguments)
        self._leases.drop(delivery.entry_id)
        if moved:
            self._metrics.orders["retried"].inc()
            _log.warning("retry_scheduled", **_about(delivery), after=round(outcome.after, 3), error=outcome.error)

    async def _bury(self, delivery: Delivery, reason: DeadReason, error: str) -> None:
        moved = await until_available("redis", self._queue.bury, delivery, reason, error)
        self._leases.drop(delivery.entry_id)
        if moved:
            self._metrics.orders["dead"].inc()
            _log.error("buried", **_about(delivery), reason=reason.value, error=error)


def _about(delivery: Delivery) -> dict[str, object]:
    return {"order_id": delivery.order_id, "entry_id": delivery.entry_id, "attempt": delivery.attempt}
