"""A Redis Cluster."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import count
from pathlib import Path

from cluster_nodes import ClusterServer, members
from cluster_set import ClusterSet
from cluster_slots import move_slots, remove
from proxy import Proxy
from redis.crc import key_slot

from chaos.disk import disk
from chaos.plan import Fault, Kind
from chaos.redis_side import OPTIONS_OF_REPLICATED, Place, Way, have_files, nat_options, pick, program
from ingest.lab.servers import ValkeyServer

# Seconds between the keys of a slot in migration.
_BETWEEN_KEYS = 0.01


class ClusterSide:
    """Three primaries with a replica each. Further nodes come and go, which the service reaches directly."""

    def __init__(self, cluster: ClusterSet, proxies: Mapping[int, Proxy]) -> None:
        self._cluster = cluster
        self._proxies = proxies
        # Their slots were at other nodes before.
        self._removed: list[ClusterServer] = []

    @classmethod
    @contextmanager
    def open(cls, folder: Path, binary: Path | None) -> Iterator["ClusterSide"]:
        """Start the nodes and the proxies."""
        folder.mkdir(mode=0o700)
        with ExitStack() as stack:
            for number in range(1, 7):
                stack.enter_context(disk(folder / f"node-{number}"))
            cluster = stack.enter_context(ClusterSet.open(program(binary, folder), folder, **OPTIONS_OF_REPLICATED))
            proxies = {node.port: stack.enter_context(Proxy(node.port)) for node in cluster.nodes}
            yield cls(cluster, proxies)

    @property
    def servers(self) -> Sequence[ValkeyServer]:
        return [*self._cluster.nodes, *self._removed]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self._proxies.values())
        return self._cluster.url(hosts=hosts, options=nat_options(self._proxies).replace("&", "?", 1))

    @property
    def straight_url(self) -> str:
        return self._cluster.url()

    async def attach(self) -> None:
        await self._cluster.become_ready()

    async def primaries(self) -> Sequence[Place]:
        """Without nodes that come and go."""
        found = await self._cluster.primaries()
        return [Place(node, self._proxies[node.port]) for node in found if node.port in self._proxies]

    async def heal(self) -> None:
        await self._cluster.settle()
        await have_files(self._cluster.running)

    async def keepers(self) -> Sequence[ValkeyServer]:
        return [*await self._cluster.primaries(), *self._removed]

    def ways(self) -> Mapping[Kind, Way]:
        return {
            Kind.REDIS_FAILOVER: self._fail_over,
            Kind.REDIS_REPLACED: self._replace,
            Kind.REDIS_MIGRATION: self._migrate,
            Kind.REDIS_NODE: self._add_and_remove,
            Kind.REDIS_ROLLING: self._restart_all,
        }

    async def _fail_over(self, fault: Fault) -> str:
        primary = pick(await self._cluster.primaries(), fault)
        [replica] = await self._cluster.replicas_of(primary)
        await self._cluster.promote(replica)
        return f"port {replica.port} is a primary in place of {primary.port}"

    async def _replace(self, fault: Fault) -> str:
        primary = pick(await self._cluster.primaries(), fault)
        key = await self._some_key(primary)
        await asyncio.to_thread(primary.kill)
        other = await self._cluster.await_other_than(primary, key)
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(primary.start)
        return f"port {other.port} is a primary in place of {primary.port}"

    async def _some_key(self, primary: ClusterServer) -> str:
        [slots] = [each.slots for each in await members(primary) if each.port == primary.port]
        owned = {slot for first, last in slots for slot in range(first, last + 1)}
        return next(str(number) for number in count() if key_slot(str(number).encode()) in owned)

    async def _migrate(self, fault: Fault) -> str:
        stream = pick(await self._streams(), fault)
        source = await self._cluster.owner(stream)
        target = pick([node for node in await self._cluster.primaries() if node is not source], fault)
        slot = key_slot(stream.encode())
        await move_slots(self._cluster, range(slot, slot + 1), target, pause=_BETWEEN_KEYS)
        return f"the slot of {stream} from port {source.port} to {target.port}"

    async def _streams(self) -> list[str]:
        """The streams of all queues in a fixed order."""
        async with self._cluster.client() as client:
            return sorted([key.decode() async for key in client.scan_iter("ingest:{*}:stream")])

    async def _add_and_remove(self, fault: Fault) -> str:
        """Give a further node the slots of half of all queues for some time."""
        node = await self._cluster.add()
        replica = await self._cluster.add(replica_of=node)
        for stream in (await self._streams())[::2]:
            slot = key_slot(stream.encode())
            await move_slots(self._cluster, range(slot, slot + 1), node)
        await asyncio.sleep(fault.seconds)
        await remove(self._cluster, node)
        self._removed += [node, replica]
        return f"port {node.port} has come and gone"

    async def _restart_all(self, fault: Fault) -> str:
        for node in list(self._cluster.nodes):
            await asyncio.to_thread(node.stop)
            await asyncio.sleep(fault.seconds)
            await asyncio.to_thread(node.start)
            await self.heal()
        return f"{len(self._cluster.nodes)} nodes"
