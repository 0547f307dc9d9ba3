"""Moves slots of a cluster between nodes, in single steps that a test can stop between, or whole ranges."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

from cluster_nodes import ClusterServer, ask, members
from cluster_set import ClusterSet
from redis.asyncio import Redis
from redis.exceptions import ResponseError
from servers.kinds import Kind
from support import eventually

_KEYS = 100  # of one MIGRATE
_TOGETHER = 500
_IN_A_WRITE = 20
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
        await ask(self.source, *_migrate(self.source, self.target, keys))

    async def finish(self) -> None:
        """Move the remaining keys and make the target the owner."""
        while keys := await self.keys():
            await self.move(keys)
        owner = await ask(self.target, "CLUSTER", "MYID")
        # The target first: a crash between leaves an owner.
        for node in (self.target, self.source):
            await ask(node, "CLUSTER", "SETSLOT", self.slot, "NODE", owner)
        await _announce(self._cluster, range(self.slot, self.slot + 1), self.source, self.target)
        await self._cluster.settle()


async def move_slots(cluster: ClusterSet, slots: range, target: ClusterServer, *, pause: float = 0.0) -> None:
    """Move a range with one owner, a slot with keys after the other, as `redis-cli --cluster reshard` does.

    Args:
        cluster: the running cluster.
        slots: consecutive numbers.
        target: a primary.
        pause: seconds between the keys of a slot, which are then moved one by one.
    """
    source = await cluster.owner_of_slot(slots.start)
    if source is target:
        return
    async with Redis.from_url(source.url) as there, Redis.from_url(target.url) as here:
        for start in range(slots.start, slots.stop, _TOGETHER):
            some = range(start, min(start + _TOGETHER, slots.stop))
            counts = await _each(there, some, "COUNTKEYSINSLOT")
            used = [slot for slot, count in zip(some, counts, strict=True) if count]
            # Commands with several keys fail while their slot is open, so a slot with keys is opened separately.
            for opened in (*([slot] for slot in used), [slot for slot in some if slot not in used]):
                await _each(here, opened, "SETSLOT", "IMPORTING", await ask(source, "CLUSTER", "MYID"))
                await _each(there, opened, "SETSLOT", "MIGRATING", await ask(target, "CLUSTER", "MYID"))
                for slot, count in zip(opened, await _each(there, opened, "COUNTKEYSINSLOT"), strict=True):
                    moving = MovingSlot(cluster, slot, source, target)
                    while count and (keys := await moving.keys()):
                        await moving.move(keys[:1] if pause else keys)
                        await asyncio.sleep(pause)
                for client in (here, there):
                    await _each(client, opened, "SETSLOT", "NODE", await ask(target, "CLUSTER", "MYID"))
    await _announce(cluster, slots, source, target)
    await cluster.settle()


def can_move_atomically(kind: Kind) -> bool:
    """Whether `move_slots_atomically` works with this server."""
    return kind.product == "valkey" or kind.is_redis_since(8, 4)


async def move_slots_atomically(cluster: ClusterSet, slots: range, target: ClusterServer) -> None:
    """Move a range with one owner by the server's own migration, which exchanges the owner when all keys have been copied."""
    source = await cluster.owner_of_slot(slots.start)
    first, last = slots.start, slots.stop - 1
    try:
        node = await ask(target, "CLUSTER", "MYID")
        await ask(source, "CLUSTER", "MIGRATESLOTS", "SLOTSRANGE", first, last, "NODE", node)
    except ResponseError:  # not Valkey
        await ask(target, "CLUSTER", "MIGRATION", "IMPORT", first, last)

    async def is_moved() -> bool:
        return await cluster.owner_of_slot(last) is target

    await eventually(is_moved, every=0.05)
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


async def _announce(cluster: ClusterSet, slots: Sequence[int], source: ClusterServer, target: ClusterServer) -> None:
    """Let the other primaries accept the new owner."""
    owner = await ask(target, "CLUSTER", "MYID")
    for node in await cluster.primaries():
        if node not in (source, target):
            async with Redis.from_url(node.url) as client:
                await _each(client, slots, "SETSLOT", "NODE", owner)


async def _each(client: Redis, slots: Sequence[int], command: str, *arguments: str | bytes) -> list[Any]:
    """Send a command about each slot, on several connections, because Valkey replies after its replicas."""

    async def send(some: Sequence[int]) -> list[Any]:
        pipeline = client.pipeline(transaction=False)
        for slot in some:
            pipeline.execute_command("CLUSTER", command, slot, *arguments)
        return list(await pipeline.execute())

    parts = [slots[start : start + _IN_A_WRITE] for start in range(0, len(slots), _IN_A_WRITE)]
    return [reply for replies in await asyncio.gather(*map(send, parts)) for reply in replies]


def _migrate(source: ClusterServer, target: ClusterServer, keys: Iterable[bytes]) -> list[str | bytes | int]:
    where = (target.host, target.port, "", 0, _TIMEOUT_MS)
    return ["MIGRATE", *where, "AUTH", source.password, "KEYS", *keys]
