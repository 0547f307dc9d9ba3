"""Stores orders in natural batches: while one commits, the next gathers; a lone order waits for nothing.

The ack follows the commit, while the next batch is stored. If the process dies between the two, the entries are delivered
again and change nothing; in the other order they would be lost.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.outcome import Store
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.held import Held
from ingest.flow.settle.acks import Acks
from ingest.flow.settle.refused_rows import RefusedRows
from ingest.flow.settle.rows import Item
from ingest.flow.settle.writer import Writer

# With a backlog: a batch costs both sides as much as some twenty rows, and slots do not wait for it.
_GATHER = 0.04
# Seconds after which to see whether any can still come.
_LOOK = 0.005
# This many rows are worth a batch at once.
_ENOUGH = 250


class Batches:
    """The orders that wait to be stored.

    Args:
        writer: writes them.
        acks: takes what is stored, to finish its entries.
        refused: the rows that PostgreSQL refuses.
        held: tells whether other orders may come.
        rows: most rows of a batch.
    """

    def __init__(self, writer: Writer, acks: Acks, refused: RefusedRows, held: Held, rows: int) -> None:
        self._enough = min(_ENOUGH, rows)
        self._writer = writer
        self._acks = acks
        self._refused = refused
        self._gathered: list[Item] = []
        self._wake = asyncio.Event()
        self._is_enough = asyncio.Event()
        self._finishing = False
        self._held = held
        self._gather_for = self._gather_until = 0.0
        self._look: asyncio.TimerHandle

    def add(self, delivery: Delivery, outcome: Store) -> None:
        """Store the orders of a delivery with the next batch, and ack it then."""
        document = None if outcome.document is None else outcome.document.decode()
        rows = [
            OrderRow.of(order, outcome.fetched_at, delivery.attempt, delivery.enqueued_at, document)
            for order in outcome.orders
        ]
        self._gathered.append(Item(delivery, rows, outcome.size))
        count = len(self._gathered)
        if count == 1:
            self._wake.set()
        if count == self._enough:
            self._is_enough.set()

    def expect_more(self, *, backlog: bool) -> None:
        """Say whether there is a backlog: then a row may wait a moment for others."""
        self._gather_for = _GATHER if backlog else 0.0

    def finish(self) -> None:
        """Let `run` return once everything gathered is stored, except what is refused."""
        self._finishing = True
        self._wake.set()
        self._is_enough.set()

    @contextmanager
    def holding_none(self) -> Iterator[None]:
        """Meanwhile no refused row is held."""
        with self._refused.holding_none():
            self._wake.set()
            yield

    async def run(self) -> None:
        """Store until `finish`. Cancelled, it drops what is not stored; that stays pending."""
        while not (self._finishing and not self._gathered):
            await self._woken()
            if self._gather_for and len(self._gathered) < self._enough and self._gathered and not self._finishing:
                await self._gather()
            self._wake.clear()
            if self._gathered:
                await self._store(self._next_batch())
            if self._refused:
                self._again(await self._refused.retry())
            self._refused.log_end()

    async def _gather(self) -> None:
        """Wait for enough rows, for a moment; no longer once nothing is in flight that could bring another."""
        loop = asyncio.get_running_loop()
        self._is_enough.clear()
        self._gather_until = loop.time() + self._gather_for
        self._look = loop.call_later(_LOOK, self._look_again, len(self._gathered))
        try:
            await self._is_enough.wait()
        finally:
            self._look.cancel()

    def _look_again(self, before: int) -> None:
        loop, count = asyncio.get_running_loop(), len(self._gathered)
        # With a backlog, orders that have just ended are soon followed by others.
        if loop.time() >= self._gather_until or (count == before and not self._held.undecided()):
            self._is_enough.set()
        else:
            self._look = loop.call_later(_LOOK, self._look_again, count)

    async def _woken(self) -> None:
        """Wait for something to store, or for the time to try again what is refused."""
        if not self._refused:
            await self._wake.wait()
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(self._refused.due_in()):
                await self._wake.wait()

    def _next_batch(self) -> list[Item]:
        count = self._writer.fitting(self._gathered)
        batch, self._gathered = self._gathered[:count], self._gathered[count:]
        if self._gathered:
            self._wake.set()
        return batch

    async def _store(self, batch: list[Item]) -> None:
        written = await self._writer.write(batch)
        self._acks.add(written)
        self._again(await self._refused.after(written))

    def _again(self, items: list[Item]) -> None:
        if items:
            self._gathered[:0] = items
            self._wake.set()
