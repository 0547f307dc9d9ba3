"""The connections of one process to Redis, which the consumers of all its sources share.

Each source adds one connection for its reads, because a read blocks. If a connection is lost, the idle ones are closed as well, because a
network that has lost one connection has often lost all of them, and each would cost its own timeout.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from functools import partial
from typing import Self

import msgspec
from redis.asyncio import Redis

from ingest.queue.consume.group_access import GroupAccess
from ingest.queue.consume.waiting_reads import IdleReads, WaitingRead
from ingest.queue.layout.keys import Keys
from ingest.queue.redis.combined_calls import ClientRunner, CombinedCalls
from ingest.queue.redis.connection import COMMAND_TIMEOUT, close_idle, control_client
from ingest.queue.redis.routed_connection import QueueConnection, open_direct
from ingest.queue.redis.scripts import has_xnack
from ingest.queue.redis.topology import Topology, topology_of

# A call for a lease that is not answered for this long counts as lost. It is repeated while the lease is valid, for three seconds.
_LEASE_TIMEOUT = 1.0
# Seconds between the instants until which idle consumers wait together, as long as each would wait by itself.
_SHARED_BLOCK = 1.25


class QueueConnections(msgspec.Struct, frozen=True):
    """Opened by `open`, which makes each connection when its first command is sent.

    Attributes:
        topology: the servers of the connections.
        control: for commands that do not block.
        looking: for reads of several partitions, which do not block.
        calls: regular calls of all consumers.
        acks: over a connection for nothing else, so that they do not wait behind other commands.
        idle: reads of idle consumers.
        quota_calls: calls of quotas, over a connection for nothing else.
        closing: closes the connections that are idle.
    """

    topology: Topology
    control: Redis
    looking: QueueConnection
    calls: CombinedCalls
    acks: CombinedCalls
    idle: IdleReads
    quota_calls: CombinedCalls
    closing: list[Callable[[], Awaitable[None]]]

    @classmethod
    @asynccontextmanager
    async def open(cls, url: str, shared_block: float = _SHARED_BLOCK) -> AsyncIterator[Self]:
        """The connections of a process to `url`. Idle consumers wait together for up to `shared_block` seconds."""
        closing: list[Callable[[], Awaitable[None]]] = []
        on_loss = partial(_close_all, closing)
        topology = topology_of(url)
        async with (
            control_client(topology) as control,
            open_direct(topology, COMMAND_TIMEOUT, on_loss) as acking,
            open_direct(topology, COMMAND_TIMEOUT, on_loss) as looking,
            open_direct(topology, 2 * shared_block + COMMAND_TIMEOUT, on_loss) as reading,
            open_direct(topology, _LEASE_TIMEOUT) as leasing,
        ):
            closing.append(partial(close_idle, control))
            closing += [connection.close_if_idle for connection in (acking, looking, reading)]
            runners = ClientRunner(control), acking, leasing
            calls, acks, quota_calls = (CombinedCalls(control, runner, topology) for runner in runners)
            idle = IdleReads(reading, shared_block)
            try:
                yield cls(topology, control, looking, calls, acks, idle, quota_calls, closing)
            finally:
                for part in (idle, calls, acks, quota_calls):
                    await part.close()

    @asynccontextmanager
    async def reading(self, block: float) -> AsyncIterator[QueueConnection]:
        """A connection for reads, which block up to `block` seconds."""
        async with open_direct(self.topology, block + COMMAND_TIMEOUT, partial(_close_all, self.closing)) as reading:
            self.closing.append(reading.close_if_idle)
            try:
                yield reading
            finally:
                self.closing.remove(reading.close_if_idle)

    @asynccontextmanager
    async def access(self, queue: str, group: str, name: str, reading: QueueConnection) -> AsyncIterator[GroupAccess]:
        """Access of the consumer `name` to a group of a queue, with a connection for reads."""
        keys = Keys.of(queue, group)
        waiting = WaitingRead(reading, group, name, self.idle)
        self.idle.consumers += 1
        try:
            can_xnack = await has_xnack(self.control, keys.probe)
            yield GroupAccess(self.control, self.calls, self.acks, waiting, keys, group, name, can_xnack)
        finally:
            self.idle.consumers -= 1

    def have_one_owner(self, keys: Iterable[str]) -> bool:
        """Whether one command may name all these keys."""
        return len({self.topology.owner_of(key) for key in keys}) == 1


async def _close_all(closing: list[Callable[[], Awaitable[None]]]) -> None:
    for close in list(closing):
        await close()
