"""Stores orders in natural batches: the next batch gathers while one commits, and a lone order does not wait.

The ack follows the commit, while the next batch is stored. If the process dies between the two, the entries are delivered again and
change nothing. In the other order they would be lost.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.outcome import Store
from ingest.domain.orders.order_history import HistoryEvent
from ingest.domain.orders.order_row import OrderRow
from ingest.flow.held import Held
from ingest.flow.settle.acks import Acks
from ingest.flow.settle.recorder import Recorder
from ingest.flow.settle.refused_rows import RefusedRows
from ingest.flow.settle.rows import Item
from ingest.flow.settle.writer import Writer

# Seconds to gather rows with a backlog. A batch costs both sides as much as about twenty rows, and no slot waits for it.
_GATHER = 0.04
# Seconds between two checks for orders in flight.
_LOOK = 0.005
# With this many rows, a batch starts immediately.
_ENOUGH = 250


class Batches:
    """The orders that wait to be stored.

    Args:
        held: the deliveries in flight, which may bring further orders.
        rows: most rows of a batch.
        recorder: of the history of the orders, if it is kept.
    """

    def __init__(
        self,
        writer: Writer,
        acks: Acks,
        refused: RefusedRows,
        held: Held,
        rows: int,
        recorder: Recorder | None = None,
    ) -> None:
        self._recorder = recorder
        self._enough = min(_ENOUGH, rows)
        self._writer = writer
        self._acks = acks
        self._refused = refused
        self._gathered: list[Item] = []
        self._wake = asyncio.Event()
        self._finishing = False
        self._held = held
        self._has_backlog = False

    def add(self, delivery: Delivery, outcome: Store) -> None:
        """Store the orders of a delivery with the next batch, and ack it then."""
        document = None if outcome.document is None else outcome.document.decode()
        note = None if self._recorder is None else self._recorder.note(delivery, outcome.took)
        rows = [
            OrderRow.of(order, outcome.fetched_at, delivery.attempt, delivery.enqueued_at, document, note)
            for order in outcome.orders
        ]
        if self._recorder is not None and not rows:
            self._recorder.add(delivery, HistoryEvent.SKIPPED, outcome.took)
        self._gathered.append(Item(delivery, rows, outcome.size))
        self._wake.set()

    def expect_more(self, *, backlog: bool) -> None:
        """Set whether there is a backlog, with which a row may wait a moment for others."""
        self._has_backlog = backlog

    def finish(self) -> None:
        """Let `run` return once all gathered orders are stored or rejected."""
        self._finishing = True
        self._wake.set()

    @contextmanager
    def holding_none(self) -> Iterator[None]:
        """Hold no rejected row while the block runs."""
        with self._refused.holding_none():
            self._wake.set()
            yield

    async def run(self) -> None:
        """Store until `finish`. If it is cancelled, orders that are not stored stay pending."""
        while not (self._finishing and not self._gathered):
            await self._woken()
            if self._has_backlog:
                await self._gather()
            self._wake.clear()
            if self._gathered:
                await self._store(self._next_batch())
            if self._refused:
                self._again(await self._refused.retry())
            self._refused.log_end()

    async def _gather(self) -> None:
        """Wait a moment for enough rows, but only while deliveries in flight can bring more."""
        now = asyncio.get_running_loop().time
        ends_at, before = now() + _GATHER, 0
        while (
            0 < (count := len(self._gathered)) < self._enough
            and not self._finishing
            # With a backlog, orders that have just ended are soon followed by others.
            and (count > before or self._held.undecided())
            and now() < ends_at
        ):
            before = count
            await asyncio.sleep(_LOOK)

    async def _woken(self) -> None:
        """Wait for an order to store, or for the next try of rejected rows."""
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
