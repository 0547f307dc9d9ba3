"""A Redis Cluster of primaries and replicas, all of one kind of server."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from itertools import count, permutations
from pathlib import Path
from urllib.parse import quote

from cluster_nodes import ClusterServer, ask, members, owner_among, replication_of, role_of, state_of
from node_network import NodeNetwork
from redis.asyncio.cluster import ClusterNode as Address
from redis.asyncio.cluster import RedisCluster
from redis.crc import key_slot
from redis.exceptions import RedisError
from servers.kinds import Kind
from support import eventually

from ingest.lab.watchdog import Watchdog

SLOTS = 16_384
_OFTEN = 0.05


class ClusterSet:
    """The running servers.

    Attributes:
        nodes: the first primaries, then a replica of each in the same order, then added nodes. Killed nodes stay here.
    """

    def __init__(self, nodes: Sequence[ClusterServer], primaries: int, another: Callable[[], ClusterServer]) -> None:
        self.nodes = list(nodes)
        self._first_primaries = primaries
        self._another = another

    @classmethod
    @contextmanager
    def open(
        cls,
        kind: Kind,
        folder: Path,
        *,
        primaries: int = 3,
        replicas: int = 1,
        network: NodeNetwork | None = None,
        **options: str,
    ) -> Iterator["ClusterSet"]:
        """Start all. They are a cluster after `become_ready`.

        Args:
            kind: the program.
            folder: for the nodes' folders.
            primaries: how many.
            replicas: how many of each primary.
            network: gives each node a host that can be cut off.
            options: lines of each configuration, with `_` for `-`, such as `appendonly="yes"` for restarts without a loss.
        """
        password = secrets.token_urlsafe(18)
        lines = {name.replace("_", "-"): value for name, value in options.items()}
        with ExitStack() as stack:
            watchdog = stack.enter_context(Watchdog())
            # Another set may have used the folder before.
            named = (folder / f"node-{number}" for number in count(1))
            free = (node for node in named if not (node / "valkey.conf").exists())

            def another() -> ClusterServer:
                node = ClusterServer(next(free), kind, password, lines, network, watchdog)
                stack.callback(node.close)
                return node

            nodes = [another() for _ in range(primaries * (1 + replicas))]
            with ThreadPoolExecutor(len(nodes)) as executor:
                list(executor.map(lambda node: node.start(), nodes))
            yield cls(nodes, primaries, another)

    @property
    def running(self) -> list[ClusterServer]:
        """The nodes that run."""
        return [node for node in self.nodes if node.is_running()]

    @property
    def hosts(self) -> str:
        """The addresses of all nodes, as in a URL."""
        return ",".join(node.address for node in self.nodes)

    def url(self, *, hosts: str = "", options: str = "") -> str:
        """Where clients connect. Options begin with `?`."""
        return f"redis+cluster://:{quote(self.nodes[0].password, safe='')}@{hosts or self.hosts}{options}"

    @asynccontextmanager
    async def client(self) -> AsyncIterator[RedisCluster]:
        """A client of redis-py, to look at data of all nodes."""
        addresses = [Address(node.host, node.port) for node in self.running]
        async with RedisCluster(startup_nodes=addresses, password=self.nodes[0].password) as client:
            yield client

    # -- becoming and staying a cluster -------------------------------------------------------------------

    async def become_ready(self) -> None:
        """Make the started nodes a cluster with evenly divided slots, and wait until it serves them."""
        primaries, replicas = self.nodes[: self._first_primaries], self.nodes[self._first_primaries :]
        for number, node in enumerate(self.nodes):
            await ask(node, "CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for number, node in enumerate(primaries):
            first, after = (SLOTS * each // len(primaries) for each in (number, number + 1))
            await ask(node, "CLUSTER", "ADDSLOTSRANGE", first, after - 1)
        # Without waiting for gossip, which takes seconds.
        await asyncio.gather(*(self.meet(node, other) for node, other in permutations(self.nodes, 2)))
        for number, node in enumerate(replicas):
            await self.follow(node, primaries[number % len(primaries)])
        await self.settle()

    async def settle(self) -> None:
        """Wait until the running nodes agree on the owners of all slots, serve them, and each replica has everything."""
        await eventually(self._is_settled, every=_OFTEN)

    async def replicate(self) -> None:
        """Wait until each running replica has everything of its primary."""
        await eventually(self._is_in_step, every=_OFTEN)

    async def meet(self, node: ClusterServer, other: ClusterServer) -> None:
        """Introduce a node to another node."""
        await ask(node, "CLUSTER", "MEET", other.host, other.port, other.bus)

    async def follow(self, node: ClusterServer, primary: ClusterServer) -> None:
        """Make a node without slots a replica."""
        primary_id = await ask(primary, "CLUSTER", "MYID")

        async def is_accepted() -> bool:
            with suppress(RedisError):  # until it has discovered that primary
                return bool(await ask(node, "CLUSTER", "REPLICATE", primary_id))
            return False

        await eventually(is_accepted, every=_OFTEN)

    # -- who is who ----------------------------------------------------------------------------------------

    async def owner(self, key: str) -> ClusterServer:
        """The primary of a key, as the running nodes report it."""
        return await self.owner_of_slot(key_slot(key.encode()))

    async def owner_of_slot(self, slot: int) -> ClusterServer:
        """The primary of a slot, by most of the running nodes."""
        owners = [owner_among(await members(node), slot) for node in self.running]
        port = max(set(owners), key=owners.count)
        assert port, f"nobody owns slot {slot}"
        return self._at(port)

    async def primaries(self) -> list[ClusterServer]:
        """The running nodes that consider themselves primaries, with or without slots."""
        found = [await role_of(node) for node in self.running]
        return [node for node, role in zip(self.running, found, strict=True) if role == b"master"]

    async def replicas_of(self, primary: ClusterServer) -> list[ClusterServer]:
        """The running replicas of a primary, which may have been killed."""
        known = await members(self.running[0])
        [primary_id] = [each.id for each in known if each.port == primary.port]
        nodes = [self._at(each.port) for each in known if each.primary == primary_id]
        return [node for node in nodes if node.is_running()]

    # -- roles change --------------------------------------------------------------------------------------

    async def promote(self, replica: ClusterServer) -> None:
        """Exchange the roles of a replica and its running primary, without a loss, as an operator does."""
        await ask(replica, "CLUSTER", "FAILOVER")

        async def is_primary() -> bool:
            return await role_of(replica) == b"master"

        await eventually(is_primary, every=_OFTEN)
        await self.settle()

    async def await_other_than(self, before: ClusterServer, key: str) -> ClusterServer:
        """Wait until the others have replaced the primary of a key, which was killed, frozen or cut off, and serve all slots."""
        others = [node for node in self.running if node is not before]
        slot = key_slot(key.encode())

        async def is_replaced() -> int | None:
            with suppress(RedisError, OSError):
                owners = {owner_among(await members(node), slot) for node in others}
                states = {await state_of(node) for node in others}
                if states == {"ok"} and len(owners) == 1 and before.port not in owners:
                    return owners.pop()
            return None

        port = await eventually(is_replaced, every=_OFTEN)
        assert port
        return self._at(port)

    # -- nodes come and go (the slots of nodes: `cluster_slots`) -------------------------------------------

    async def add(self, *, replica_of: ClusterServer | None = None) -> ClusterServer:
        """Start another node, which is a primary without slots, or a replica."""
        node = self._another()
        await asyncio.to_thread(node.start)
        for other in self.running:
            await self.meet(other, node)
            await self.meet(node, other)
        self.nodes.append(node)
        if replica_of is not None:
            await self.follow(node, replica_of)
        await self.settle()
        return node

    async def forget(self, node: ClusterServer) -> None:
        """Remove a node without slots and without replicas, and end it."""
        node_id = await ask(node, "CLUSTER", "MYID")
        self.nodes.remove(node)
        for other in self.running:
            await ask(other, "CLUSTER", "FORGET", node_id)
        await asyncio.to_thread(node.close)
        await self.settle()

    async def restart(self, node: ClusterServer) -> None:
        """Stop a node if it runs, start it, and wait until it is a member again. Without persistence it loses its data."""
        await asyncio.to_thread(node.restart)
        await self.settle()

    def _at(self, port: int) -> ClusterServer:
        return next(node for node in self.nodes if node.port == port)

    async def _is_settled(self) -> bool:
        ports = {node.port for node in self.running}
        with suppress(RedisError, OSError):
            views = [await members(node) for node in self.running]
            states = {await state_of(node) for node in self.running}
            return (
                states == {"ok"}
                and all(ports == {each.port for each in view if each.is_well} for view in views)
                and len({tuple(sorted((each.port, each.slots) for each in view if each.slots)) for view in views}) == 1
                and await self._is_in_step()
            )
        return False

    async def _is_in_step(self) -> bool:
        with suppress(RedisError, OSError, KeyError):
            before = {node.port: await replication_of(node) for node in self.running}
            # Read after them, because a primary with clients is always a little ahead.
            after = {node.port: await replication_of(node) for node in self.running}
            return all(
                each["role"] == "master"
                or (
                    each["master_link_status"] == "up"
                    and each["slave_repl_offset"] >= before[each["master_port"]]["master_repl_offset"]
                )
                for each in after.values()
            )
        return False
