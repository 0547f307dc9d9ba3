"""The connections of one process to Redis, which the consumers of all its sources share.

Each consumer adds one connection for its reads, because a read blocks. If a connection is lost, the idle ones are closed as well, because a
network that has lost one connection has often lost all of them, and each would cost its own timeout.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

from redis.asyncio import Redis

from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.connection import COMMAND_TIMEOUT, close_idle, control_client
from ingest.queue.redis.direct_connection import DirectConnection
from ingest.queue.redis.scripts import has_xnack

# A lease of a quota is renewed several times a second: a server that does not answer for this long counts as unavailable.
_LEASE_TIMEOUT = 2.0


class QueueConnections:
    """Opened by `open`, which makes each connection when its first command is sent.

    Attributes:
        control: for commands that do not block.
        acking: for acks, so that they do not wait behind other commands.
        leasing: for leases of quotas.
    """

    def __init__(
        self,
        url: str,
        control: Redis,
        acking: DirectConnection,
        leasing: DirectConnection,
        closing: list[Callable[[], Awaitable[None]]],
    ) -> None:
        self.control = control
        self.acking = acking
        self.leasing = leasing
        self._url = url
        self._closing = closing

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str) -> AsyncIterator[Self]:
        """The connections of a process to `url`."""
        closing: list[Callable[[], Awaitable[None]]] = []
        async with (
            control_client(url) as control,
            DirectConnection.open(url, COMMAND_TIMEOUT, _each(closing)) as acking,
            DirectConnection.open(url, _LEASE_TIMEOUT) as leasing,
        ):
            closing += [partial(close_idle, control), acking.close_if_idle]
            yield cls(url, control, acking, leasing, closing)

    @asynccontextmanager
    async def access(self, queue: str, group: str, name: str, block: float) -> AsyncIterator[GroupAccess]:
        """Access of the consumer `name` to a group of a queue, with a connection for reads, which block up to `block` seconds."""
        keys = Keys.of(queue, group)
        async with DirectConnection.open(self._url, block + COMMAND_TIMEOUT, _each(self._closing)) as reading:
            self._closing.append(reading.close_if_idle)
            try:
                can_xnack = await has_xnack(self.control, keys.probe)
                yield GroupAccess(self.control, reading, self.acking, keys, group, name, has_xnack=can_xnack)
            finally:
                self._closing.remove(reading.close_if_idle)


def _each(closing: list[Callable[[], Awaitable[None]]]) -> Callable[[], Awaitable[None]]:
    async def close_idle_ones() -> None:
        for close in list(closing):
            await close()

    return close_idle_ones
