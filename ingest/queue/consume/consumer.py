"""One consumer of the group: reads entries, moves each to where its outcome says, and takes part in the group's maintenance.

If the process dies here, its entries stay pending under its name, until its successor claims them by `claim_own`, or
another consumer by `claim_abandoned` when its heartbeat has ended.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

from ingest.queue.consume.liveness import LiveMember
from ingest.queue.consume.maintenance import MaintainingMember
from ingest.queue.consume.source import ReadingMember
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.capabilities import probe
from ingest.queue.redis.connection import COMMAND_TIMEOUT, close_idle, control_client
from ingest.queue.redis.direct_connection import DirectConnection


class Consumer(ReadingMember, LiveMember, MaintainingMember):
    """A named consumer of one queue's group.

    All methods raise `QueueUnavailable` when Redis cannot be used right now; calling again is always safe. A group
    that has vanished is created again from the start of its streams: what is seen a second time changes nothing.
    """

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, queue: str, group: str, name: str, block: float, results_age: float = 0.0
    ) -> AsyncIterator[Self]:
        """A consumer with its connections: one that blocks in reads, one for acks, some for all else."""
        keys = Keys.of(queue, group)
        closing: list[Callable[[], Awaitable[None]]] = []

        async def close_idle_ones() -> None:
            # A network that has lost one connection has often lost all, and each would cost its own timeout.
            for close in closing:
                await close()

        async with (
            control_client(url) as control,
            DirectConnection.open(url, block + COMMAND_TIMEOUT, close_idle_ones) as reading,
            DirectConnection.open(url, COMMAND_TIMEOUT, close_idle_ones) as acking,
        ):
            closing += [partial(close_idle, control), reading.close_if_idle, acking.close_if_idle]
            capabilities = await probe(control, keys.probe)
            yield cls(control, reading, acking, keys, group, name, capabilities=capabilities, results_age=results_age)
