"""Acks what is stored: only after its commit, and only what is still ours."""

from collections.abc import Iterable

from ingest.flow.availability import until_available
from ingest.flow.buffer_limit import BufferLimit
from ingest.flow.heartbeat import Heartbeats
from ingest.flow.in_flight import InFlight
from ingest.flow.items import Item, Written
from ingest.flow.ports import Settling
from ingest.flow.results import finished


class Acks:
    """The acks of one process.

    Args:
        queue: where entries are finished.
        heartbeats: confirm that what is held is still ours.
        in_flight: holds entries until they are acked.
        buffer: its space is released with them.
    """

    def __init__(self, queue: Settling, heartbeats: Heartbeats, in_flight: InFlight, buffer: BufferLimit) -> None:
        self._queue = queue
        self._heartbeats = heartbeats
        self._in_flight = in_flight
        self._buffer = buffer

    async def finish(self, written: Written) -> None:
        """Ack what was stored, if it is still ours, and release the buffer space of what others have claimed."""
        await self._heartbeats.confirm()
        ours = [item.delivery for item in written.stored if self._in_flight.holds(item.delivery)]
        if ours:
            if self._queue.keeps_results:
                results = [
                    each
                    for delivery, each in finished(written.stored, written.effects)
                    if self._in_flight.holds(delivery)
                ]
                await until_available("redis", self._queue.ack_with_results, results)
            else:
                await until_available("redis", self._queue.ack, [delivery.entry for delivery in ours])
            for delivery in ours:
                self._in_flight.remove(delivery)
        self.free(written.stored)
        self.free(written.lost)

    def free(self, items: Iterable[Item]) -> None:
        """Release the buffer space of items that are settled."""
        for item in items:
            self._buffer.release(item.size)
