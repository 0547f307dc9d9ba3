"""Lets one process at a time change the partitions of a queue, and shows its progress to the others.

The hold is in the record of the partitions. If its process dies, another one can hold the change a few seconds later. If the process is
only cut off, the generation of the next layout rejects its moves, see `adopt_dead_letter.lua`.
"""

import asyncio
from typing import Any

import msgspec
from redis.asyncio import Redis

from ingest.domain.errors import QueueUnavailable
from ingest.queue.partitions.draining import ChangedMeanwhile
from ingest.queue.partitions.layout_record import layout_key
from ingest.queue.redis.connection import translated
from ingest.queue.redis.scripts import load

# Seconds until a process that does not renew its hold counts as dead, and between two renewals.
_LASTS, _INTERVAL = 3.0, 0.5


class HeldChange(msgspec.Struct, frozen=True):
    """A change that a process makes.

    Attributes:
        holder: the name of the process.
        partitions: the new number.
        left: entries and retries of former partitions.
    """

    holder: str
    partitions: int
    left: int = 0


class ChangeHold:
    """The hold of one process. Its methods raise `QueueUnavailable` when Redis cannot be used right now.

    Attributes:
        change: as other processes see it after the next renewal.
    """

    def __init__(self, client: Redis, queue: str, change: HeldChange) -> None:
        self.change = change
        self._key = layout_key(queue)
        self._hold = load(client, "hold_change")

    async def take(self) -> HeldChange | None:
        """Hold the change, or return the change of the process that holds it."""
        return await self._call(_LASTS)

    async def renew(self) -> None:
        """Renew the hold until this is cancelled.

        Raises:
            ChangedMeanwhile: another process holds the change, because this one was cut off.
        """
        while True:
            await asyncio.sleep(_INTERVAL)
            try:
                other = await self.take()
            except QueueUnavailable:
                continue
            if other is not None:
                raise ChangedMeanwhile(f"{other.holder} changes the partitions now")

    async def release(self) -> None:
        """Let other processes hold the change."""
        await self._call(0.0)

    async def is_held_in(self, client: Redis) -> bool:
        """Whether another client leads to the same hold, and so to the same Redis."""
        with translated():
            holder: Any = await client.hget(self._key, "holder")
        return bool(holder == self.change.holder.encode())

    async def _call(self, lasts: float) -> HeldChange | None:
        with translated():
            progress: bytes | None = await self._hold(
                [self._key], [self.change.holder, int(lasts * 1000), msgspec.json.encode(self.change)]
            )
        return None if progress is None else msgspec.json.decode(progress, type=HeldChange)
