"""Reads at the servers of the partitions, each of which responds, is late or fails alone. No read waits for entries.

If the process dies here, the entries are pending under its name, as with every read.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from ingest.domain.deliveries.delivery import Delivery
from ingest.domain.errors import QueueUnavailable
from ingest.queue.consume.partition import Partition, Share
from ingest.queue.consume.partition_set import PartitionSet
from ingest.queue.consume.waiting_reads import read_command, reply_by_stream
from ingest.queue.redis.combined_calls import end
from ingest.queue.redis.connection import NoGroup, translated
from ingest.queue.redis.routed_connection import QueueConnection

# Seconds for which a read waits for the first server, and for the others after it has responded.
_LONGEST = 1.0
_WAIT = 0.01


class _Read(msgspec.Struct, frozen=True):
    """A read at one server, whose room no other read uses."""

    server: str
    room: int
    entries: "asyncio.Task[list[Delivery]]"


class ServerReads:
    """The reads of one consumer, over a connection for reads that do not block."""

    def __init__(self, partitions: PartitionSet, connection: QueueConnection, group: str, name: str) -> None:
        self._partitions = partitions
        self._connection = connection
        self._group = group
        self._name = name
        self._reads: list[_Read] = []

    @property
    def room(self) -> int:
        """The entries that reads in progress may return."""
        return sum(read.room for read in self._reads)

    def idle(self, partitions: Sequence[Partition]) -> list[Partition]:
        """Return the partitions of servers without a read in progress."""
        busy = {read.server for read in self._reads}
        return [each for each in partitions if self._server_of(each) not in busy]

    async def read(self, shares: Sequence[Share]) -> list[Delivery]:
        """Read up to a number of entries of each partition, with one write to each server, and return those that have come soon."""
        by_server: dict[str, list[Share]] = {}
        for partition, share in shares:
            by_server.setdefault(self._server_of(partition), []).append((partition, share))
        for server, own in by_server.items():
            reading = asyncio.create_task(self._read_server(own))
            self._reads.append(_Read(server, sum(share for _, share in own), reading))
        await self.wait(_LONGEST)
        if any(not read.entries.done() for read in self._reads):
            await asyncio.wait([read.entries for read in self._reads], timeout=_WAIT)
        return self.take()

    async def wait(self, seconds: float) -> None:
        """Wait up to `seconds` until a read has ended."""
        if self._reads:
            tasks = [read.entries for read in self._reads]
            await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)

    def take(self) -> list[Delivery]:
        """Return the entries of reads that have ended. An error is raised only if all have failed."""
        found: list[Delivery] = []
        errors, succeeded = [], False
        ended = [read for read in self._reads if read.entries.done()]
        self._reads = [read for read in self._reads if read not in ended]
        for read in ended:
            try:
                found += read.entries.result()
                succeeded = True
            except QueueUnavailable as error:
                errors.append(error)
        if (
            errors
            and not succeeded
            and not self._reads
            and (self._partitions.have_one_owner or all("read" in each.troubles for each in self._partitions.all))
        ):
            raise errors[0]
        return found

    async def close(self) -> None:
        """End the reads whose replies are outstanding. Their entries stay pending."""
        await end(read.entries for read in self._reads)

    def _server_of(self, partition: Partition) -> str:
        return self._partitions.server_of(partition.reading.streams[0])

    async def _read_server(self, shares: Sequence[Share]) -> list[Delivery]:
        """Read partitions of one server. Does not wait for entries."""
        # Decided once, because another call to a partition may change it before the replies come.
        by_lanes = [partition.reading.express_has_more for partition, _ in shares]
        commands = [
            read_command(self._group, self._name, partition.reading.streams, share)
            for (partition, share), is_by_lanes in zip(shares, by_lanes, strict=True)
            if not is_by_lanes
        ]
        try:
            with translated():
                replies = iter(await self._connection.call_all(commands) if commands else ())
        except QueueUnavailable as error:
            replies = iter([error] * len(commands))
        found: list[Delivery] = []
        errors = []
        for (partition, share), is_by_lanes in zip(shares, by_lanes, strict=True):
            try:
                own = None if is_by_lanes else replies
                found += await self._partitions.attempt("read", partition, self._read, partition, share, own)
            except QueueUnavailable as error:
                # A call with room reads partitions with a backlog again and again.
                partition.has_backlog = False
                errors.append(error)
        if errors and len(errors) == len(shares):
            raise errors[0]
        return found

    async def _read(self, partition: Partition, share: int, replies: Iterator[Any] | None) -> list[Delivery]:
        """The deliveries of the next reply, or by lanes without replies."""
        try:
            if replies is None:
                taken = await partition.reading.read(share, 0.0)
            else:
                with translated():
                    if isinstance(reply := next(replies), Exception):
                        raise reply
                taken = await partition.reading.received(reply_by_stream(reply), share, share)
        except NoGroup:
            partition.has_backlog = False
            await partition.access.restore_group()
            return []
        partition.has_backlog = len(taken) >= share
        return taken
