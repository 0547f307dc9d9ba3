"""The connections of one process to Redis, which the consumers of all its sources share.

Each consumer adds one connection for its reads, because a read blocks. If a connection is lost, the idle ones are closed as well, because a
network that has lost one connection has often lost all of them, and each would cost its own timeout.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Self

import msgspec
from redis.asyncio import Redis
from redis.commands.core import AsyncScript

from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.consume.idle_reads import IdleReads
from ingest.queue.consume.shared_commands import SharedCommands
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.combined_calls import CombinedCalls
from ingest.queue.redis.connection import COMMAND_TIMEOUT, close_idle, control_client
from ingest.queue.redis.direct_connection import DirectConnection
from ingest.queue.redis.scripts import has_xnack
from ingest.queue.redis.topology import Owner, only_owner

# A lease of a quota is renewed several times a second: a server that does not answer for this long counts as unavailable.
_LEASE_TIMEOUT = 2.0
# Seconds between the instants until which idle consumers wait together.
_SHARED_BLOCK = 1.0


class QueueConnections(msgspec.Struct, frozen=True, kw_only=True):
    """Opened by `open`, which makes each connection when its first command is sent.

    Attributes:
        owner: the server of the connections.
        control: for commands that do not block.
        acking: for acks, so that they do not wait behind other commands.
        shared: commands that the consumers share.
        quota_calls: calls of quotas, over a connection for nothing else.
        closing: closes the connections that are idle.
    """

    owner: Owner
    control: Redis
    acking: DirectConnection
    shared: SharedCommands
    quota_calls: CombinedCalls
    closing: list[Callable[[], Awaitable[None]]]

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, shared_block: float = _SHARED_BLOCK) -> AsyncIterator[Self]:
        """The connections of a process to `url`. Idle consumers wait together for up to `shared_block` seconds."""
        closing: list[Callable[[], Awaitable[None]]] = []
        owner = only_owner(url)
        async with (
            control_client(owner) as control,
            DirectConnection.open(owner, COMMAND_TIMEOUT, _each(closing)) as acking,
            DirectConnection.open(owner, 2 * shared_block + COMMAND_TIMEOUT, _each(closing)) as reading,
            DirectConnection.open(owner, _LEASE_TIMEOUT) as leasing,
        ):
            closing += [partial(close_idle, control), acking.close_if_idle, reading.close_if_idle]
            shared = SharedCommands(
                CombinedCalls(control, _run), CombinedCalls(control, acking.run), IdleReads(reading, shared_block)
            )
            quota_calls = CombinedCalls(control, leasing.run)
            try:
                yield cls(
                    owner=owner, control=control, acking=acking, shared=shared, quota_calls=quota_calls, closing=closing
                )
            finally:
                await shared.close()
                await quota_calls.close()

    @asynccontextmanager
    async def access(self, queue: str, group: str, name: str, block: float) -> AsyncIterator[GroupAccess]:
        """Access of the consumer `name` to a group of a queue, with a connection for reads, which block up to `block` seconds."""
        keys = Keys.of(queue, group)
        async with DirectConnection.open(self.owner, block + COMMAND_TIMEOUT, _each(self.closing)) as reading:
            self.closing.append(reading.close_if_idle)
            self.shared.consumers += 1
            try:
                can_xnack = await has_xnack(self.control, keys.probe)
                yield GroupAccess(
                    self.control, reading, self.acking, keys, group, name, has_xnack=can_xnack, shared=self.shared
                )
            finally:
                self.shared.consumers -= 1
                self.closing.remove(reading.close_if_idle)


async def _run(script: AsyncScript, keys: Sequence[Any], arguments: Sequence[Any]) -> Any:
    return await script(keys, arguments)


def _each(closing: list[Callable[[], Awaitable[None]]]) -> Callable[[], Awaitable[None]]:
    async def close_idle_ones() -> None:
        for close in list(closing):
            await close()

    return close_idle_ones
