"""Acks what is stored: only after its commit, and only what is still ours.

What is stored waits a moment for its ack, so that one call acks several entries, and the next rows are stored meanwhile. Until
then each entry is held: its lease is renewed, and its buffer space is taken. If the process dies here, the entries are
delivered again and change nothing.
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
from ingest.flow.settle.results import finished
from ingest.flow.settle.rows import Item, Written

# A call costs both sides as much as acking some ten entries more. Nothing waits for an ack, but the space of a full buffer.
_GATHER = 0.025
# This many entries are worth a call at once.
_ENOUGH = 200


class Acks:
    """The acks of one process; `run` must be running while entries are added.

    Args:
        queue: where entries are finished.
        heartbeats: confirm that what is held is still ours.
        held: holds entries until they are acked.
        buffer: its space is released with them.
    """

    def __init__(self, queue: Settling, heartbeats: Heartbeats, held: Held, buffer: BufferLimit) -> None:
        self._queue = queue
        self._heartbeats = heartbeats
        self._held = held
        self._buffer = buffer
        self._written: list[Written] = []
        self._entries = 0
        self._due = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._has_backlog = False
        self._finishing = False
        buffer.observe_waiting(self._due.set)

    def add(self, written: Written) -> None:
        """Ack soon what was stored, if it is still ours then; release the buffer space of what others have claimed."""
        self.free(written.lost)
        if not written.stored:
            return
        self._written.append(written)
        self._entries += len(written.stored)
        if self._has_backlog or self._finishing or self._entries >= _ENOUGH or self._buffer.is_wanted:
            self._due.set()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_GATHER, self._due.set)

    def expect_more(self, *, backlog: bool) -> None:
        """Say whether there is a backlog: then many rows are stored together, and their acks need not wait for others."""
        self._has_backlog = backlog
        if backlog and self._written:
            self._due.set()

    def finish(self) -> None:
        """Let `run` return once everything added is acked."""
        self._finishing = True
        self._due.set()

    async def run(self) -> None:
        """Ack until `finish`. Cancelled, it drops what is not acked; that stays pending."""
        while not (self._finishing and not self._written):
            if not self._finishing:
                await self._due.wait()
            self._due.clear()
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None
            if self._written:
                written, self._written, self._entries = self._written, [], 0
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
        """Send the ack of what is still ours. Sent again after a failover, it must not finish another entry that has an ID of theirs."""
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
            result
            for each in written
            for delivery, result in finished(each.stored, each.effects)
            if self._held.holds(delivery)
        ]
