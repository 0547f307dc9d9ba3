"""Acks entries after their commit, if this consumer still holds them.

Stored entries wait a moment, so that one call acks several of them while the next rows are stored. Until then each entry is held: its
lease is renewed, and its buffer space is taken. If the process dies here, the entries are delivered again and change nothing.
"""

import asyncio
from collections.abc import Iterable

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.deliveries.result import Finished
from ingest.flow.availability import until_available
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.group.heartbeat import Heartbeats
from ingest.flow.held import Held
from ingest.flow.ports import Settling
from ingest.flow.settle.rows import Item, Written, finished, with_effects

# A call costs both sides as much as about ten entries. Only the space of a full buffer waits for an ack.
_GATHER = 0.025
# With this many entries, the call is sent immediately.
_ENOUGH = 200


class Acks:
    """The acks of one process. `run` must be running while entries are added."""

    def __init__(self, queue: Settling, heartbeats: Heartbeats, held: Held, buffer: BufferLimit) -> None:
        self._queue = queue
        self._heartbeats = heartbeats
        self._held = held
        self._buffer = buffer
        self._written: list[Written] = []
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._has_backlog = False
        self._finishing = False
        buffer.observe_waiting(self._due.set)

    def add(self, written: Written) -> None:
        """Ack stored items soon, and release the buffer space of items that other processes have claimed."""
        self.free(written.lost)
        if not written.stored:
            return
        self._written.append(written)
        is_enough = sum(len(each.stored) for each in self._written) >= _ENOUGH
        if is_enough or self._has_backlog or self._finishing or self._buffer.is_wanted:
            self._due.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self._due.set)

    def expect_more(self, *, backlog: bool) -> None:
        """Set whether there is a backlog, with which many rows are stored together and their acks need not wait."""
        self._has_backlog = backlog
        if backlog and self._written:
            self._due.set()

    def finish(self) -> None:
        """Let `run` return once all added items are acked."""
        self._finishing = True
        self._due.set()

    async def run(self) -> None:
        """Ack until `finish`. If it is cancelled, entries that are not acked stay pending."""
        while not (self._finishing and not self._written):
            if not self._finishing:
                await self._due.wait()
            self._due.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._written:
                written, self._written = self._written, []
                await self._ack(written)

    def free(self, items: Iterable[Item]) -> None:
        """Release the buffer space of items that are settled."""
        self._buffer.release(*[item.size for item in items])

    async def _ack(self, written: list[Written]) -> None:
        await self._heartbeats.confirm()
        self._held.remove(*await until_available("redis", self._send, written))
        for each in written:
            self.free(each.stored)

    async def _send(self, written: list[Written]) -> list[Delivery]:
        """Send the ack of items that are still held. Repeated after a failover, it must not finish another entry with the same ID."""
        ours = [item.delivery for each in written for item in self._held.still_held(each.stored)]
        if not ours:
            return []
        if self._queue.keeps_results:
            await self._queue.ack_with_results(self._results(written))
        else:
            await self._queue.ack([delivery.entry for delivery in ours])
        return ours

    def _results(self, written: list[Written]) -> list[Finished]:
        return [
            finished(item, effects)
            for each in written
            for item, effects in with_effects(each.stored, each.effects)
            if self._held.holds(item.delivery)
        ]
