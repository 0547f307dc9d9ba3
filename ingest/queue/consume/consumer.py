"""One consumer of the group.

If the process dies here, its entries stay pending under its name, until its successor claims them by `claim_own`, or
another consumer by `claim_abandoned` when its heartbeat has expired.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

import msgspec

from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.consume.liveness import QueueLiveness
from ingest.queue.consume.maintenance import QueueMaintenance
from ingest.queue.consume.reading import QueueReading
from ingest.queue.consume.settling import QueueSettling
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import COMMAND_TIMEOUT, close_idle, control_client
from ingest.queue.redis.direct_connection import DirectConnection
from ingest.queue.redis.scripts import has_xnack


class Consumer(msgspec.Struct, frozen=True):
    """A named consumer of one queue's group, by its ports, which share three connections.

    All methods of the ports raise `QueueUnavailable` when Redis cannot be used right now. It is always safe to call them again. A
    group that has vanished is created again from the start of its streams, because a second delivery changes nothing.
    """

    access: GroupAccess
    reading: QueueReading
    settling: QueueSettling
    liveness: QueueLiveness
    maintenance: QueueMaintenance

    @classmethod
    def on(cls, access: GroupAccess, results_age: float = 0.0) -> Self:
        """The consumer that `access` names. Results are kept for `results_age` seconds."""
        settling = QueueSettling(access, results_age)
        return cls(access, QueueReading(access, settling), settling, QueueLiveness(access), QueueMaintenance(access))

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, queue: str, group: str, name: str, block: float, results_age: float = 0.0
    ) -> AsyncIterator[Self]:
        """A consumer with its connections: one for reads, which block up to `block` seconds, one for acks, and a few for the rest."""
        keys = Keys.of(queue, group)
        closing: list[Callable[[], Awaitable[None]]] = []

        async def close_idle_ones() -> None:
            # A network that has lost one connection has often lost all of them, and each would cost its own timeout.
            for close in closing:
                await close()

        async with (
            control_client(url) as control,
            DirectConnection.open(url, block + COMMAND_TIMEOUT, close_idle_ones) as reading,
            DirectConnection.open(url, COMMAND_TIMEOUT, close_idle_ones) as acking,
        ):
            closing += [partial(close_idle, control), reading.close_if_idle, acking.close_if_idle]
            can_xnack = await has_xnack(control, keys.probe)
            access = GroupAccess(control, reading, acking, keys, group, name, has_xnack=can_xnack)
            yield cls.on(access, results_age)
