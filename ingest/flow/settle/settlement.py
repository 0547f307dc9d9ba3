"""Applies outcomes. Together with its parts, it is the only module of the flow that stores, acks and moves entries."""

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import assert_never

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.outcome import DeadLetter, Release, Retry, Store
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held
from ingest.flow.ports import Settling
from ingest.flow.ports import Store as OrderStore
from ingest.flow.settle.acks import Acks
from ingest.flow.settle.batches import Batches
from ingest.flow.settle.moves import Moves
from ingest.flow.settle.recorder import Recorder
from ingest.flow.settle.refused_rows import RefusedRows
from ingest.flow.settle.writer import Writer
from ingest.telemetry.metrics import WorkerMetrics


class Settlement:
    """Settles deliveries. `run` must be running while `store` is called.

    Attributes:
        moves: moves entries that are not stored.
        servers: the availability of PostgreSQL, and the locks on tables.

    Args:
        buffer: the space that an order has acquired before. Released when it is settled.
        recorder: of the history of the orders, if it is kept.
        now: wall clock in Unix seconds, for latencies.
    """

    def __init__(
        self,
        queue: Settling,
        store: OrderStore,
        held: Held,
        heartbeats: Heartbeats,
        metrics: WorkerMetrics,
        buffer: BufferLimit,
        recorder: Recorder | None = None,
        *,
        now: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._buffer = buffer
        self.moves = Moves(queue, held, metrics, recorder)
        self._writer = writer = Writer(store, held, heartbeats, metrics, buffer.rows, now=now)
        self._acks = acks = Acks(queue, heartbeats, held, buffer)
        refused = RefusedRows(writer, acks, self.moves, buffer, clock=clock)
        self.servers = (writer.availability, refused.locks)
        self._batches = Batches(writer, acks, refused, held, buffer.rows, recorder)

    @property
    def stored(self) -> int:
        """The number of orders that were inserted or changed."""
        return self._writer.stored

    def store(self, delivery: Delivery, outcome: Store) -> None:
        """Store the orders of a delivery, and ack its entry, with the next batch."""
        try:
            self._batches.add(delivery, outcome)
        except BaseException:
            # No row can be made of it, so no commit will release its space.
            self._buffer.release(outcome.size)
            raise

    async def move(self, delivery: Delivery, outcome: Retry | DeadLetter | Release) -> None:
        """Apply an outcome that moves the entry instead of storing something."""
        match outcome:
            case Retry():
                await self.moves.retry(delivery, outcome)
            case DeadLetter():
                await self.moves.dead_letter(delivery, outcome)
            case Release():
                await self.moves.release([delivery])
            case _:
                assert_never(outcome)

    def expect_more(self, *, backlog: bool) -> None:
        """Set whether there is a backlog, with which an order may wait a moment for others."""
        self._batches.expect_more(backlog=backlog)
        self._acks.expect_more(backlog=backlog)

    def holding_no_rows(self) -> AbstractContextManager[None]:
        """Hold no rejected row while the block runs, because an entry is processed in isolation."""
        return self._batches.holding_none()

    def finish(self) -> None:
        """Let `run` return once all orders are stored and acked, or rejected."""
        self._batches.finish()

    async def run(self) -> None:
        """Store and ack until `finish`. If it is cancelled, entries that are not acked stay pending."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._acks.run())
            await self._batches.run()
            self._acks.finish()
