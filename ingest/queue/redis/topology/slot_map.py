"""Which node of a cluster owns a slot, as the nodes report it.

The map is read from one node when a slot's owner is unknown or has failed. A slot that has moved is noted without reading the whole
map, because the reply `MOVED` contains the new owner.
"""

import asyncio
import random
from collections.abc import Callable
from typing import Any

from redis import exceptions as redis_errors

from ingest.domain.redis_urls.cluster_url import ClusterUrl
from ingest.domain.redis_urls.redis_addresses import Address
from ingest.queue.redis.checked_connections import connection_options
from ingest.queue.redis.closing_clients import ClosingClient, ClosingPool
from ingest.queue.redis.topology.lookups import Lookups, summary_of
from ingest.queue.redis.topology.role_connections import MemberConnection

_SLOTS = 16_384
# Seconds. Several nodes may have to be queried within the shortest timeout of a command.
_NODE_TIMEOUT = 0.5
_MOST_ASKED = 3
# Seconds after which the list of all primaries is read again.
_FRESH = 5.0


class SlotMap(Lookups):
    """The owners of slots, for all connections of a topology."""

    def __init__(self, url: ClusterUrl, uniform: Callable[[float, float], float] = random.uniform) -> None:
        super().__init__(uniform)
        self._url = url
        self._owners: list[Address | None] = [None] * _SLOTS
        self._read_at = float("-inf")
        # Nodes that have failed, each with the number of lookups before.
        self._suspects: dict[Address, int] = {}

    async def find(self, slot: int) -> Address:
        """Return where the owner of a slot is reached.

        Raises:
            ConnectionError: no node responds, or none owns the slot.
            NoQueueThere: the nodes deny access, or form no cluster.
        """
        owner = self._owners[slot]
        if owner is None or self._suspects.get(owner) == self.lookups:
            await self.refresh()
            owner = self._owners[slot]
        if owner is None:
            raise redis_errors.ConnectionError(f"no node of the cluster owns slot {slot}")
        return owner

    def known_owner(self, slot: int) -> Address | None:
        """Return where the owner of a slot was reached when it was last looked up."""
        return self._owners[slot]

    async def primaries(self) -> list[Address]:
        """Return where all owners of slots are reached, in order, with those that have failed at the end. It raises as `find` does."""
        if asyncio.get_running_loop().time() - self._read_at > _FRESH or self._suspects:
            await self.refresh()
        return sorted(self._known(), key=lambda each: (each in self._suspects, each))

    def is_primary(self, address: Address) -> bool:
        """Whether a node owns slots."""
        return address in self._owners

    def confirm(self, address: Address) -> None:
        """Note that a node accepts connections and is a primary."""
        self._suspects.pop(address, None)
        if not self._suspects:
            self.unconfirmed = 0

    def suspect(self, address: Address) -> None:
        """Note that a node has failed. Its slots are looked up before they are used again."""
        self._suspects[address] = self.lookups

    def moved(self, slot: int, address: Address) -> None:
        """Note that a slot has moved to the node with a reported address."""
        self._owners[slot] = self.reached(address)

    def reached(self, address: Address) -> Address:
        """Return where a node with a reported address is reached."""
        return self._url.reached_at.get(address, address)

    def _known(self) -> set[Address]:
        return {owner for owner in self._owners if owner is not None}

    async def look_up(self) -> redis_errors.RedisError | None:
        """Query one node after the other for the map."""
        failures: dict[str, Exception] = {}
        for host, port in self._candidates():
            try:
                self._owners = await self._ask(host, port)
            except (redis_errors.RedisError, OSError) as error:
                failures[f"node {host}:{port}"] = error
                continue
            self._read_at = asyncio.get_running_loop().time()
            self._suspects = {each: at for each, at in self._suspects.items() if each in self._owners}
            return None
        return summary_of(failures)

    def _candidates(self) -> list[Address]:
        """The nodes to query, in random order: known ones, and those in the URL, with those that have failed at the end.

        A node that is cut off from the others may still respond, and report itself as the owner of its former slots.
        """

        def shuffled(addresses: set[Address]) -> list[Address]:
            return sorted(addresses, key=lambda each: (each in self._suspects, self.uniform(0, 1)))

        known = shuffled(self._known() - self._suspects.keys())[:_MOST_ASKED]
        return list(dict.fromkeys([*known, *shuffled({*self._url.nodes})]))

    async def _ask(self, host: str, port: int) -> list[Address | None]:
        """Return the owner of each slot that a node reports."""
        options = connection_options(self._url.redis_url, MemberConnection) | {"host": host, "port": port}
        options |= {"socket_timeout": _NODE_TIMEOUT, "socket_connect_timeout": _NODE_TIMEOUT}
        async with ClosingClient.from_pool(ClosingPool(**options)) as node:
            # As two words, because redis-py would not return the reply as it is.
            reply: Any = await node.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]  # redis-py leaves it so
        owners: list[Address | None] = [None] * _SLOTS
        for first, last, (name, number, *_), *_ in reply:
            # Without a name, it is the address of the node that was queried. `?` is an unknown one.
            reported = name.decode() if isinstance(name, bytes) else name
            owner = None if reported == "?" else self.reached((reported or host, int(number)))
            owners[first : last + 1] = [owner] * (last + 1 - first)
        if not any(owners):
            raise redis_errors.ConnectionError("no slot is assigned to a node")
        return owners
