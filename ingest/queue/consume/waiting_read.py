"""Reads new entries of several streams of one server with one command, which may wait for the first entry.

A consumer that has received nothing for a while waits together with the other idle consumers of its process, see `idle_reads`. If the
process dies here, or a reply is lost, the entries are pending under the name of the consumer.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Any

from ingest.queue.consume.group_access import SharedCommands
from ingest.queue.consume.idle_reads import IdleReads, by_stream, read_command
from ingest.queue.redis.connection import translated
from ingest.queue.redis.routed_connection import QueueConnection

# An idle consumer closes its own connection after this many reads together with others.
_CLOSED_AFTER = 8


class WaitingRead:
    """The reads of one consumer, over a connection for reads, which block."""

    def __init__(self, connection: QueueConnection, group: str, name: str, shared: SharedCommands | None) -> None:
        self._connection = connection
        self._group = group
        self._name = name
        self._shared = shared
        # When this consumer counts as idle, if it receives nothing until then.
        self._idle_from = math.inf

    async def read(self, streams: Sequence[str], count: int, block: float) -> Mapping[bytes, Any]:
        """Return up to `count` new entries of each stream, waiting up to `block` seconds for the first. 0 does not wait."""
        shared = self._shared if self._shared is not None and self._shared.are_used else None
        if shared is None or block < shared.reads.longest:
            return await self._read_alone(streams, count, block)
        return await self._read_unless_idle(shared.reads, streams, count)

    async def _read_alone(self, streams: Sequence[str], count: int, block: float) -> Mapping[bytes, Any]:
        with translated():
            return by_stream(await self._connection.call(*read_command(self._group, self._name, streams, count, block)))

    async def _read_unless_idle(self, reads: IdleReads, streams: Sequence[str], count: int) -> Mapping[bytes, Any]:
        """Read together with others if nothing has come for a while, and otherwise alone, until the same instant."""
        clock = asyncio.get_running_loop().time
        idle_from, self._idle_from = self._idle_from, math.inf  # stays so if the read fails
        entries = None
        if clock() >= idle_from:
            if clock() >= idle_from + _CLOSED_AFTER * reads.longest:
                # Before a firewall forgets it. A source that soon receives entries again needs it again.
                await self._connection.close_if_idle()
            with translated():
                entries = await reads.read(self._group, self._name, streams, count)
        if entries is None:
            entries = await self._read_alone(streams, count, reads.seconds_left())
        self._idle_from = clock() + reads.longest if entries or idle_from == math.inf else idle_from
        return entries
