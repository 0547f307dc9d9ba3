"""Stores orders in natural batches: while one commits, the next gathers; a lone order waits for nothing.

The ack follows the commit. If the process dies between the two, the entries are delivered again and change nothing; in the
other order they would be lost.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ingest.domain.delivery import Delivery
from ingest.domain.order_row import OrderRow
from ingest.domain.outcome import Store
from ingest.flow.acks import Acks
from ingest.flow.items import Item
from ingest.flow.refused_rows import RefusedRows
from ingest.flow.writing import Writer

# With a backlog: a batch costs both sides as much as some twenty rows, and slots do not wait for it.
_GATHER = 0.04
# This many rows are worth a batch at once.
_ENOUGH = 250


class Batches:
    """The orders that wait to be stored.

    Args:
        writer: writes them.
        acks: finishes their entries.
        refused: the rows that PostgreSQL refuses.
    """

    def __init__(self, writer: Writer, acks: Acks, refused: RefusedRows) -> None:
        self._writer = writer
        self._acks = acks
        self._refused = refused
        self._gathered: list[Item] = []
        self._wake = asyncio.Event()
        self._is_enough = asyncio.Event()
        self._finishing = False
        self._gather_for = 0.0

    def add(self, delivery: Delivery, outcome: Store) -> None:
        """Store the orders of a delivery with the next batch, and ack it then."""
        rows = tuple(
            OrderRow.of(order, outcome.fetched_at, delivery.attempt, delivery.enqueued_at, outcome.document)
            for order in outcome.orders
        )
        self._gathered.append(Item(delivery, rows, outcome.size))
        self._wake.set()
        if len(self._gathered) == _ENOUGH:
            self._is_enough.set()

    def expect_more(self, *, backlog: bool) -> None:
        """Say whether there is a backlog: then a row may wait a moment for others."""
        self._gather_for = _GATHER if backlog else 0.0

    def finish(self) -> None:
        """Let `run` return once everything gathered is stored and acked, except what is refused."""
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
        """Store and ack until `finish`. Cancelled, it drops what is not acked; that stays pending."""
        while not (self._finishing and not self._gathered):
            await self._woken()
            if self._gather_for and len(self._gathered) < _ENOUGH and self._gathered and not self._finishing:
                await self._gather()
            self._wake.clear()
            if self._gathered:
                await self._store(self._next_batch())
            if self._refused:
                self._again(await self._refused.retry())
            self._refused.log_end()

    async def _gather(self) -> None:
        self._is_enough.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._gather_for):
                await self._is_enough.wait()

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
        await self._acks.finish(written)
        self._again(await self._refused.after(written))

    def _again(self, items: list[Item]) -> None:
        if items:
            self._gathered[:0] = items
            self._wake.set()
