"""Reads that wait for the first entry: of one consumer, or of all idle consumers of a process, which would otherwise be one each.

A consumer is idle after its own read has waited without a result. All idle consumers wait until the same instants, about a second
apart. On a busy machine some come late, so the read is short and repeated until all have come, with those that have come since. A
consumer that is not expected waits with a separate read until the same instant, so that no entry waits for it. A consumer whose queue
Redis denies access to does not get here, because its own read fails.

If the process dies here, or a reply is lost, the entries are pending under the names of their consumers, as with every read.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
from redis.exceptions import ResponseError

from ingest.domain.errors import QueueUnavailable
from ingest.queue.redis.checked_connections import SEVERAL_SLOTS, code_of
from ingest.queue.redis.combined_calls import end, settle
from ingest.queue.redis.connection import translated
from ingest.queue.redis.routed_connection import QueueConnection

# An idle consumer closes its own connection after this many reads together with others.
_CLOSED_AFTER = 8
# Seconds for which the first consumer waits for the others, which come from the same instant, at most. A read without some of them is as
# short, and each further one twice as long, so that a consumer waits for the next read at most for as long as it was late.
_GATHERING = 0.025
# The last part of the time between two instants, which is too short for a read.
_TOO_SHORT = 0.05


class WaitingRead:
    """The reads of one consumer, over a connection for reads, which block."""

    def __init__(self, connection: QueueConnection, group: str, name: str, idle: "IdleReads") -> None:
        self._connection = connection
        self._group = group
        self._name = name
        self._idle = idle
        # When this consumer counts as idle, if it receives nothing until then.
        self._idle_from = math.inf

    async def read(self, streams: Sequence[str], count: int, block: float) -> Mapping[bytes, Any]:
        """Return up to `count` new entries of each stream, waiting up to `block` seconds for the first. 0 does not wait."""
        if self._idle.consumers > 1 and block >= self._idle.longest:
            return await self._read_unless_idle(streams, count)
        return await self._read_alone(streams, count, block)

    async def _read_alone(self, streams: Sequence[str], count: int, block: float) -> Mapping[bytes, Any]:
        with translated():
            return reply_by_stream(
                await self._connection.call(*read_command(self._group, self._name, streams, count, block))
            )

    async def _read_unless_idle(self, streams: Sequence[str], count: int) -> Mapping[bytes, Any]:
        """Read together with others if nothing has come for a while, and otherwise alone, until the same instant."""
        clock, reads = asyncio.get_running_loop().time, self._idle
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


class _Waiting(msgspec.Struct, frozen=True):
    streams: Sequence[str]
    count: int
    entries: "asyncio.Future[Mapping[bytes, Any] | None]"


class IdleReads:
    """The reads of the idle consumers of a process, over a connection for nothing else.

    Attributes:
        longest: seconds between two instants.
        consumers: of the process, idle or not. A single one waits alone.
    """

    def __init__(self, connection: QueueConnection, longest: float) -> None:
        self._connection = connection
        # The group and the name of the consumers that read together.
        self._reader = ("", "")
        self._waiting: list[_Waiting] = []
        self._reading: asyncio.Task[None] | None = None
        self._is_gathering = False
        self._are_combined = True
        # How many consumers wait together next: those that did before, and those that came unexpectedly.
        self._expected = self._unexpected = 0
        self._come = 0
        self._are_here = asyncio.Event()
        self.longest = longest
        self.consumers = 0

    def seconds_left(self) -> float:
        """Until the next instant, or the one after it if that is very near."""
        left = self.longest - asyncio.get_running_loop().time() % self.longest
        return left if left >= _TOO_SHORT else left + self.longest

    async def read(self, group: str, name: str, streams: Sequence[str], count: int) -> Mapping[bytes, Any] | None:
        """New entries by stream, up to `count` of each, waiting until the next instant.

        None if the consumer has to read by itself: all others wait already, or Redis denies access to one of the streams.
        """
        if not self._are_combined:
            return None
        if self._reading is None:
            self._reader = (group, name)
        elif not self._is_gathering or self._reader != (group, name):
            self._unexpected += 1
            return None
        waiting = _Waiting(streams, count, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if self._reading is None:
            self._is_gathering = True
            self._come = 0
            self._are_here.clear()
            self._reading = asyncio.create_task(self._gather_and_read())
        self._come += 1
        if self._come >= self._expected:
            self._are_here.set()
        return await waiting.entries

    async def close(self) -> None:
        """End a read. The entries in its reply stay pending."""
        await end([self._reading] if self._reading is not None else ())

    async def _gather_and_read(self) -> None:
        result: Mapping[bytes, Any] | Exception | None = QueueUnavailable("the connection was closed")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(_GATHERING):
                    await self._are_here.wait()
            result = await self._read_until(asyncio.get_running_loop().time() + self.seconds_left())
        except QueueUnavailable as error:
            result = error
        finally:
            self._reading, self._is_gathering = None, False
            rest, self._waiting = self._waiting, []
            self._expected, self._unexpected = len(rest) + self._unexpected, 0
            for each in rest:
                settle(each.entries, result)

    async def _read_until(self, instant: float) -> Mapping[bytes, Any] | None:
        """Read for all that wait. Consumers without entries wait until the instant. Returns the result for them."""
        loop = asyncio.get_running_loop()
        longest = _GATHERING
        with translated():
            # A read may end a little early.
            while (left := instant - loop.time()) > _TOO_SHORT / 10:
                # Without consumers that were served, or have ended.
                self._waiting = [each for each in self._waiting if not each.entries.done()]
                if not self._waiting:
                    break
                self._is_gathering = not self._are_here.is_set()
                if self._is_gathering:
                    left, longest = min(left, longest), 2 * longest
                try:
                    streams = [stream for each in self._waiting for stream in each.streams]
                    command = read_command(*self._reader, streams, min(each.count for each in self._waiting), left)
                    found = reply_by_stream(await self._connection.call(*command))
                except ResponseError as error:
                    # No entry was delivered. A cluster rejects commands for several slots, and stays a cluster while this process runs.
                    self._are_combined = code_of(error) != SEVERAL_SLOTS
                    return None
                for each in self._waiting:
                    own = {name: found[name] for stream in each.streams if (name := stream.encode()) in found}
                    if own:
                        settle(each.entries, own)
        return {}


def read_command(group: str, name: str, streams: Sequence[str], count: int, block: float = 0.0) -> list[str | int]:
    """Return the command that reads up to `count` new entries of each stream, waiting up to `block` seconds."""
    command: list[str | int] = ["XREADGROUP", "GROUP", group, name, "COUNT", count]
    if block:
        command += ["BLOCK", max(1, int(block * 1000))]
    return [*command, "STREAMS", *streams, *[">"] * len(streams)]


def reply_by_stream(reply: Any) -> Mapping[bytes, Any]:
    """The entries in a reply by the stream that they come from, in the form of either protocol."""
    return reply if isinstance(reply, dict) else dict(reply or ())
