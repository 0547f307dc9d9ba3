"""A Redis Cluster, whose nodes own the slots to which keys belong."""

from typing import Any

import msgspec
from redis.crc import key_slot

from ingest.domain.redis_urls.cluster_url import ClusterUrl
from ingest.domain.redis_urls.redis_addresses import Address, address_text
from ingest.queue.redis.checked_connections import connection_options
from ingest.queue.redis.topology.role_connections import NodeConnection
from ingest.queue.redis.topology.slot_map import SlotMap


class ClusterTopology:
    """Slots own keys. Keeps the contract of `Topology`.

    Attributes:
        slots: which node owns a slot.
    """

    def __init__(self, url: ClusterUrl) -> None:
        self._url = url
        self._nodes: dict[Address, ClusterNode] = {}
        self.slots = SlotMap(url)

    def owner_of(self, key: str) -> "SlotOwner":
        """Return the slot of a key."""
        return SlotOwner(self, slot_of(key))

    async def confirm(self) -> None:
        """Confirm it, because a node that has lost the majority rejects commands itself."""

    def last_server_of(self, key: str) -> str:
        """Return the address of the node that owned the slot of a key when it was last looked up, or else the slot."""
        slot = slot_of(key)
        address = self.slots.known_owner(slot)
        return f"the owner of slot {slot}" if address is None else address_text(address)

    async def primaries(self) -> "list[ClusterNode]":
        """Return the nodes that own slots, ordered by address, with those that have failed at the end."""
        return [self.node_at(address) for address in await self.slots.primaries()]

    async def node_of(self, slot: int) -> "ClusterNode":
        """Return the node that owns a slot, as far as it is known. It raises as `SlotMap.find` does."""
        return self.node_at(await self.slots.find(slot))

    async def server_of(self, key: str) -> "ClusterNode":
        """Return the node that owns a key. It raises as `SlotMap.find` does."""
        return await self.node_of(slot_of(key))

    def node_at(self, address: Address) -> "ClusterNode":
        """Return the node with an address. It is always the same object."""
        if (node := self._nodes.get(address)) is None:
            node = self._nodes[address] = ClusterNode(self._url, self.slots, address)
        return node


class SlotOwner(msgspec.Struct, frozen=True):
    """One slot. Keeps the contract of `Owner`."""

    topology: ClusterTopology
    slot: int


class ClusterNode:
    """A node. Keeps the contract of `Server`.

    Attributes:
        address: where it is reached.
        slots: of the cluster.
    """

    def __init__(self, url: ClusterUrl, slots: SlotMap, address: Address) -> None:
        self._url = url
        self.slots = slots
        self.address = address

    def connection_options(self, **defaults: Any) -> dict[str, Any]:
        """Return the options of connections to this node."""
        host, port = self.address
        options = connection_options(self._url.redis_url, NodeConnection, **defaults)
        return options | {"host": host, "port": port, "node": self}

    async def current_address(self) -> str:
        """Return the address."""
        return address_text(self.address)

    def suspect(self) -> None:
        """Note that the node may have been replaced."""
        self.slots.suspect(self.address)


def slot_of(key: str | bytes) -> int:
    """Return the slot of a key."""
    return key_slot(key.encode() if isinstance(key, str) else key)
