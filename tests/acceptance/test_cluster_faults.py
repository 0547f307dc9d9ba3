"""The service under load while nodes of a cluster fail, are cut off, restarted, added and removed, and slots move.

`make faults` runs 1,000 orders per second, six partitions, four worker processes and all faults, on each kind of server.
"""

import asyncio
import os
from contextlib import AbstractAsyncContextManager, ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from acceptance.disturbed_queue import CURRENCIES, DisturbedQueue
from cluster_nodes import ClusterServer, members, role_of
from cluster_set import ClusterSet
from cluster_slots import can_move_atomically, fill, move_slots, move_slots_atomically, remove
from node_network import NodeNetwork
from redis.crc import key_slot
from servers.kinds import KINDS, Kind
from support import Cli

from ingest.domain.partitions import partition_queue
from ingest.domain.source_name import queue_of
from ingest.queue.layout.keys import Keys

IS_FULL = os.environ.get("INGEST_TEST_FAULTS") == "full"
LOAD = {"partitions": 6, "rate": 1_000, "processes": 4} if IS_FULL else {"partitions": 2, "rate": 60, "processes": 2}
# Seconds without a stored order of a queue, after any fault.
LONGEST_PAUSE = 15.0
# Keys of a queue in migration are moved one by one.
KEYS_APART = 0.1
SLOTS_MOVED = 500


class Faults:
    """What happens to the cluster. The key is one of a queue that has orders."""

    def __init__(self, cluster: ClusterSet, key: str, network: NodeNetwork | None) -> None:
        self._cluster = cluster
        self._key = key
        self._network = network

    async def kill(self, backlog: AbstractAsyncContextManager[None]) -> None:
        """Kill a primary, and start it again as a replica of the promoted one."""
        primary = await self._cluster.owner(self._key)
        async with backlog:
            primary.kill()
        await self._cluster.await_other_than(primary, self._key)
        await self._cluster.restart(primary)

    async def move_slots(self) -> None:
        """Move the queue's slot with some others, key by key, so that they are divided between two nodes for a while."""
        slots, target = await self._slots_and_target()
        await move_slots(self._cluster, slots, target, pause=KEYS_APART)

    async def move_slots_atomically(self) -> None:
        """Move the queue's slot with some others, all of them at one instant."""
        await move_slots_atomically(self._cluster, *await self._slots_and_target())

    async def _slots_and_target(self) -> tuple[range, ClusterServer]:
        slot = key_slot(self._key.encode())
        owner = await self._cluster.owner(self._key)
        ranges = [each for member in await members(owner) if member.port == owner.port for each in member.slots]
        last = next(last for first, last in ranges if first <= slot <= last)
        target = next(each for each in await self._cluster.primaries() if each is not owner)
        return range(slot, min(slot + SLOTS_MOVED, last + 1)), target

    async def add(self) -> None:
        """Add a primary with its share of the slots, and a replica."""
        added = await self._cluster.add()
        await self._cluster.add(replica_of=added)
        await fill(self._cluster, added)

    async def remove(self) -> None:
        """Remove the owner of the queue with its replica, after its slots have been moved."""
        await remove(self._cluster, await self._cluster.owner(self._key))

    async def cut_two_apart(self, seconds: float) -> None:
        """Cut two primaries off from each other, which the others still reach."""
        assert self._network
        one, other, *_ = await self._cluster.primaries()
        self._network.cut([one.host], [other.host])
        await asyncio.sleep(seconds)
        self._network.heal()
        await self._cluster.settle()

    async def cut_off(self) -> None:
        """Cut a primary off from all other nodes, but not from the service, until it has been replaced."""
        assert self._network
        primary = await self._cluster.owner(self._key)
        self._network.cut([primary.host], [each.host for each in self._cluster.nodes if each is not primary])
        await self._cluster.await_other_than(primary, self._key)
        self._network.heal()
        await self._cluster.settle()

    async def restart_all(self) -> None:
        """Restart each node as in an upgrade, a primary after its replica has taken over."""
        for node in [*self._cluster.nodes]:
            if await role_of(node) == b"master":
                [replica, *_] = await self._cluster.replicas_of(node)
                await self._cluster.promote(replica)
            await self._cluster.restart(node)


@pytest.mark.parametrize("kind", KINDS[: None if IS_FULL else 1], ids=lambda kind: kind.name)
@pytest.mark.timeout(900)
async def test_nothing_replicated_is_lost_and_orders_flow_within_seconds(
    kind: Kind, cli: Cli, tmp_path: Path, queue_name: str
) -> None:
    queue = partition_queue(queue_of(queue_name, next(iter(CURRENCIES))), 0, LOAD["partitions"])
    with ExitStack() as stack:
        network = stack.enter_context(NodeNetwork.open()) if IS_FULL else None
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="ingest-")))
        cluster = stack.enter_context(ClusterSet.open(kind, folder, network=network))
        await cluster.become_ready()
        faults = Faults(cluster, Keys.of(queue).stream, network)

        async with DisturbedQueue.open(cli, tmp_path, cluster.url(), **LOAD) as disturbed:
            async with disturbed.disturbance("kill -9 of a primary", loses=True):
                await faults.kill(disturbed.backlog())
            async with disturbed.disturbance("slots moved"):
                await faults.move_slots()
            if IS_FULL and can_move_atomically(kind):
                async with disturbed.disturbance("slots moved atomically"):
                    await faults.move_slots_atomically()
            if network is not None:
                async with disturbed.disturbance("a node added"):
                    await faults.add()
                async with disturbed.disturbance("a node removed"):
                    await faults.remove()
                async with disturbed.disturbance("two primaries cut off from each other"):
                    await faults.cut_two_apart(8.0)
                async with disturbed.disturbance("a primary cut off", loses=True):
                    await faults.cut_off()
                async with disturbed.disturbance("restart of all nodes"):
                    await faults.restart_all()

    found = await disturbed.findings()
    print(f"\n{kind.name}: {found}")  # noqa: T201  the figures of a full run
    assert not found.lost, found.lost[:20]
    assert not found.wrong, found.wrong[:20]
    assert found.longest_pause <= LONGEST_PAUSE, str(found)
