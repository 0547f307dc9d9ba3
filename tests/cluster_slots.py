"""Moves slots of a cluster between nodes: in single steps that a test can stop between, or whole ranges."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from cluster_nodes import ClusterServer, ask, members
from cluster_set import ClusterSet
from redis.asyncio import Redis

_KEYS = 100  # of one MIGRATE
_TIMEOUT_MS = 5_000


class MovingSlot:
    """A slot in migration, as by `redis-cli --cluster reshard`: keys that are not at the source any more get ASK.

    Attributes:
        slot: its number.
        source: its owner, until `finish`.
        target: the node that imports it.
    """

    def __init__(self, cluster: ClusterSet, slot: int, source: ClusterServer, target: ClusterServer) -> None:
        self.slot = slot
        self.source = source
        self.target = target
        self._cluster = cluster

    @classmethod
    async def begin(cls, cluster: ClusterSet, slot: int, target: ClusterServer) -> "MovingSlot":
        """Open a slot at both nodes. No key has moved."""
        source = await cluster.owner_of_slot(slot)
        await ask(target, "CLUSTER", "SETSLOT", slot, "IMPORTING", await ask(source, "CLUSTER", "MYID"))
        await ask(source, "CLUSTER", "SETSLOT", slot, "MIGRATING", await ask(target, "CLUSTER", "MYID"))
        return cls(cluster, slot, source, target)

    async def keys(self) -> list[bytes]:
        """Up to 100 keys that are still at the source."""
        return list(await ask(self.source, "CLUSTER", "GETKEYSINSLOT", self.slot, _KEYS))

    async def move(self, keys: Iterable[bytes]) -> None:
        """Move these keys."""
        account = ("AUTH", self.source.password)
        where = (self.target.host, self.target.port)
        await ask(self.source, "MIGRATE", *where, "", 0, _TIMEOUT_MS, *account, "KEYS", *keys)

    async def finish(self) -> None:
        """Move the remaining keys and make the target the owner."""
        while keys := await self.keys():
            await self.move(keys)
        await _assign(self._cluster, range(self.slot, self.slot + 1), self.source, self.target)
        await self._cluster.settle()


async def move_slots(cluster: ClusterSet, slots: range, target: ClusterServer, *, pause: float = 0.0) -> None:
    """Move a range with one owner.

    Args:
        cluster: the running cluster.
        slots: consecutive numbers.
        target: a primary.
        pause: seconds between the keys of a slot, which are then moved one by one.
    """
    source = await cluster.owner_of_slot(slots.start)
    if source is target:
        return
    async with _clients(source, target) as (there, here):
        for client, node, state in ((here, source, "IMPORTING"), (there, target, "MIGRATING")):
            other = await ask(node, "CLUSTER", "MYID")
            pipeline = client.pipeline(transaction=False)
            for slot in slots:
                pipeline.execute_command("CLUSTER", "SETSLOT", slot, state, other)
            await pipeline.execute()
        counts = there.pipeline(transaction=False)
        for slot in slots:
            counts.execute_command("CLUSTER", "COUNTKEYSINSLOT", slot)
        counted = await counts.execute()
    # Keys that are created from now on are created at the target.
    for slot, count in zip(slots, counted, strict=True):
        moving = MovingSlot(cluster, slot, source, target)
        while count and (keys := await moving.keys()):
            await moving.move(keys[:1] if pause else keys)
            await asyncio.sleep(pause)
    await _assign(cluster, slots, source, target)
    await cluster.settle()


async def empty(cluster: ClusterSet, node: ClusterServer, *, pause: float = 0.0) -> None:
    """Move all slots of a node to the other primaries, which get about the same number of them."""
    port = node.port
    ranges = [each for member in await members(node) if member.port == port for each in member.slots]
    others = [each for each in await cluster.primaries() if each is not node]
    for first, last in ranges:
        for number, other in enumerate(others):
            start, stop = (first + (last + 1 - first) * each // len(others) for each in (number, number + 1))
            if start < stop:
                await move_slots(cluster, range(start, stop), other, pause=pause)


async def fill(cluster: ClusterSet, node: ClusterServer, *, pause: float = 0.0) -> None:
    """Give a primary without slots the first part of each other primary's, so that all have about the same number."""
    shares = len(await cluster.primaries())
    for member in await members(node):
        for first, last in member.slots:
            size = (last + 1 - first) // shares
            if member.port != node.port and size:
                await move_slots(cluster, range(first, first + size), node, pause=pause)


async def remove(cluster: ClusterSet, node: ClusterServer, *, pause: float = 0.0) -> None:
    """Remove a node, after its slots have been moved to the others, with its replicas."""
    await empty(cluster, node, pause=pause)
    for each in (*await cluster.replicas_of(node), node):
        await cluster.forget(each)


async def _assign(cluster: ClusterSet, slots: range, source: ClusterServer, target: ClusterServer) -> None:
    """Let all primaries accept the new owner, and itself first: a crash between leaves an owner."""
    owner = await ask(target, "CLUSTER", "MYID")
    others = [node for node in await cluster.primaries() if node not in (source, target)]
    for node in (target, source, *others):
        async with Redis.from_url(node.url) as client:
            pipeline = client.pipeline(transaction=False)
            for slot in slots:
                pipeline.execute_command("CLUSTER", "SETSLOT", slot, "NODE", owner)
            await pipeline.execute()


@asynccontextmanager
async def _clients(*nodes: ClusterServer) -> AsyncIterator[tuple[Redis, ...]]:
    clients = tuple(Redis.from_url(node.url) for node in nodes)
    try:
        yield clients
    finally:
        for client in clients:
            await client.aclose()
