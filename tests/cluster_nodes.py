"""A node of a Redis Cluster, and how it sees the others."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hosted_server import HostedServer
from node_network import NodeNetwork
from redis.asyncio import Redis
from servers.kinds import Kind

from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port
from ingest.lab.watchdog import Watchdog

# Shorter ones let a busy machine look like a failure.
_NODE_TIMEOUT_MS = 2_000
_OPTIONS = {
    "cluster-enabled": "yes",
    "cluster-node-timeout": str(_NODE_TIMEOUT_MS),
    # A primary without slots stays one until it is removed.
    "cluster-allow-replica-migration": "no",
    "repl-diskless-sync-delay": "0",
}
# A node that is known with any of these has not been met yet, or has failed.
_NOT_WELL = {"fail", "fail?", "handshake", "noaddr"}


class ClusterServer(HostedServer):
    """A node without slots and neighbours. Nodes of a cluster share a password."""

    def __init__(
        self,
        folder: Path,
        kind: Kind,
        password: str,
        options: Mapping[str, str],
        network: NodeNetwork | None,
        watchdog: Watchdog,
    ) -> None:
        super().__init__(folder, kind, password, {**_OPTIONS, "masterauth": password, **options}, network, watchdog)
        self.bus = 0

    def _local_command(self, port: int) -> Sequence[str | Path]:
        if self._port is None:
            # Other than the default of 10,000 above the port, it is not used for outgoing connections either.
            self.bus = free_port()
            self._options = {**self._options, "cluster-port": str(self.bus)}
        return super()._local_command(port)


@dataclass(frozen=True)
class Member:
    """A node as another node, or the node itself, describes it.

    Attributes:
        slots: ranges, with both ends.
        primary: the ID of the primary whose replica it is, or an empty text.
    """

    id: str
    port: int
    flags: frozenset[str]
    primary: str
    slots: tuple[tuple[int, int], ...]

    @property
    def is_well(self) -> bool:
        """Whether it is known and responds."""
        return not self.flags & _NOT_WELL


async def ask(node: ValkeyServer, *command: str | bytes | int) -> Any:
    """The response of a node itself, without redirection."""
    async with Redis.from_url(node.url) as client:
        return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it so


async def members(node: ValkeyServer) -> list[Member]:
    """All nodes that a node lists."""
    lines = (await ask(node, "CLUSTER", "NODES")).decode().splitlines()
    return [_member(line.split(" ")) for line in lines]


def _member(fields: Sequence[str]) -> Member:
    name, address, flags, primary, *_ = fields
    ranges = [each.partition("-") for each in fields[8:] if not each.startswith("[")]  # slots in migration
    return Member(
        name,
        int(address.partition("@")[0].rpartition(":")[2]),
        frozenset(flags.split(",")),
        primary.removeprefix("-"),
        tuple((int(first), int(last or first)) for first, _, last in ranges),
    )


def owner_among(known: Sequence[Member], slot: int) -> int | None:
    """The port of the owner of a slot, according to one node."""
    return next((each.port for each in known for first, last in each.slots if first <= slot <= last), None)


async def role_of(node: ValkeyServer) -> bytes:
    """`master` or `slave`."""
    return bytes((await ask(node, "ROLE"))[0])


async def state_of(node: ValkeyServer) -> str:
    """`ok` if it serves its slots."""
    async with Redis.from_url(node.url) as client:
        return str((await client.cluster("INFO"))["cluster_state"])


async def replication_of(node: ValkeyServer) -> dict[str, Any]:
    """Its role, and how far its data is."""
    async with Redis.from_url(node.url) as client:
        return dict(await client.info("replication"))
