"""Reads, creates and follows the record of a queue's partitions in Redis.

The record is the authority, and the setting is only the number with which it is created. All processes read it again every few seconds, so
that they follow a change within seconds and without a restart. A process that dies here has written a whole record or none.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any

from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable, UserError
from ingest.domain.partitions import Layout
from ingest.queue.layout.keys import Keys
from ingest.queue.partitions.partition_gates import PartitionGates
from ingest.queue.redis.connection import QueueDenied, server_name, translated
from ingest.queue.redis.scripts import load
from ingest.telemetry.logs import get_logger

_log = get_logger("queue")
_FIELDS = ("partitions", "former", "generation")
# Seconds after which a reading is not recent any more.
_INTERVAL = 5.0


def layout_key(queue: str) -> str:
    """Return the key of the record. It is in the slot of the queue's keys with a single partition."""
    return f"ingest:{{{queue}}}:partitions"


class LayoutRecord:
    """The record of one queue, as one process uses it.

    Args:
        client: the commands are sent by it.
        queue: the name of the whole queue, as `queue_of` returns it.
        initial: the configured number of partitions. It counts only while there is no record.
    """

    def __init__(self, client: Redis, queue: str, initial: int = 1) -> None:
        self._client = client
        self._queue = queue
        self._initial = initial
        self._layout = Layout(queue)
        self._read_at: float | None = None
        self._record = load(client, "record_layout")
        self._gates = PartitionGates(client)

    @property
    def layout(self) -> Layout:
        """The layout at the last reading. Before the first one, it is a single partition."""
        return self._layout

    async def read(self) -> Layout:
        """Read the layout now. A missing record is created if several partitions are configured.

        A later generation that this process has seen is written again, because a failover has lost it.

        Raises:
            QueueUnavailable: Redis cannot be used right now.
        """
        found = (await read_layouts(self._client, {self._queue: 1}))[self._queue]
        if found.generation < self._layout.generation:
            found = await self._write_again()
        elif not found.generation and self._initial > 1:
            found = await self._create()
        self._layout, self._read_at = found, time.monotonic()
        return found

    async def recent(self) -> Layout:
        """Return the layout, read again if the last reading was more than five seconds ago.

        A user without the right to read the record uses the single partition that is configured.

        Raises:
            QueueUnavailable: Redis cannot be used right now.
        """
        if self._read_at is not None and time.monotonic() - self._read_at < _INTERVAL:
            return self._layout
        try:
            return await self.read()
        except QueueDenied:
            if self._initial > 1 or self._layout.generation:
                raise
            self._read_at = time.monotonic()
            return self._layout

    def log(self, layout: Layout, *, is_change: bool) -> None:
        """Log a change of the layout, and warn about a difference from the setting."""
        about = {"queue": self._queue, "partitions": layout.partitions, "former": list(layout.former)}
        if is_change:
            _log.info("partitions_changed", **about)
        if layout.partitions != self._initial:
            _log.warning("partitions_differ", **about, configured=self._initial)

    async def write(self, layout: Layout) -> Layout:
        """Record a layout, and return the recorded one: this, unless another with this or a later generation was recorded before."""
        plain = Keys.of(self._queue)
        keys = [layout_key(self._queue), plain.clock, plain.stream, plain.express, plain.retry]
        with translated():
            return _parsed(self._queue, await self._record(keys, _arguments(layout)))

    async def open_queues(self, layout: Layout) -> None:
        """Let producers add entries to the queues of a layout that is going to be recorded."""
        await self._gates.open_for(layout)

    async def _create(self) -> Layout:
        first = Layout(self._queue, self._initial, (), 1)
        try:
            await self.open_queues(first)
            return await self.write(first)
        except QueueDenied as error:
            raise QueueUnavailable(
                f"the partitions of {self._queue} are recorded when its first worker starts"
            ) from error

    async def _write_again(self) -> Layout:
        try:
            return await self.write(self._layout)
        except QueueDenied:
            # Another process has the right to.
            return self._layout


async def read_layouts(client: Redis, initial: Mapping[str, int]) -> dict[str, Layout]:
    """Return the layouts of several queues by their names, in one round trip. Creates no record.

    Args:
        client: the commands are sent by it.
        initial: the configured number of partitions of each queue.

    Raises:
        QueueUnavailable: Redis cannot be used right now for one of them.
    """
    found = {}
    for queue, layout in (await known_layouts(client, initial)).items():
        if isinstance(layout, QueueUnavailable):
            raise layout
        found[queue] = layout
    return found


async def known_layouts(client: Redis, initial: Mapping[str, int]) -> dict[str, Layout | QueueUnavailable]:
    """As `read_layouts`, with the error for a queue whose record cannot be read."""
    if not initial:
        return {}
    async with client.pipeline(transaction=False) as pipe:
        for queue in initial:
            pipe.hmget(layout_key(queue), _FIELDS)
        try:
            with translated():
                replies: Sequence[Any] = await pipe.execute(raise_on_error=False)
        except QueueUnavailable as error:
            return dict.fromkeys(initial, error)
    return {
        queue: _read(client, queue, number, reply)
        for (queue, number), reply in zip(initial.items(), replies, strict=True)
    }


def _read(client: Redis, queue: str, initial: int, reply: Any) -> Layout | QueueUnavailable:
    try:
        with translated():
            if isinstance(reply, Exception):
                raise reply
            layout = _parsed(queue, reply)
    except QueueUnavailable as error:
        server = server_name(client, layout_key(queue))
        if not server or isinstance(error, UserError):
            return error
        located = QueueUnavailable(f"the record of the partitions of {queue} is on {server}: {error}")
        located.__cause__ = error.__cause__
        return located
    # Until the first worker or producer creates the record, the queue may exist from before.
    return layout if layout.generation or initial == 1 else Layout(queue, initial, (1,))


def _parsed(queue: str, values: Sequence[Any]) -> Layout:
    partitions, former, generation = values
    if partitions is None:
        return Layout(queue)
    numbers = tuple(int(number) for number in former.split(b",") if number)
    return Layout(queue, int(partitions), numbers, int(generation))


def _arguments(layout: Layout) -> list[Any]:
    return [layout.partitions, ",".join(map(str, layout.former)), layout.generation]
