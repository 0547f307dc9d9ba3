"""Connections that check the role of their server: the primary of a Sentinel set, a Sentinel, or a node of a cluster."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from redis import exceptions as errors

from ingest.domain.redis_urls.redis_addresses import Address
from ingest.queue.redis.checked_connections import CheckedConnection, NoQueueThere, is_of_wrong_server

if TYPE_CHECKING:
    from ingest.queue.redis.topology.cluster import ClusterNode
    from ingest.queue.redis.topology.sentinel import PrimaryAddress


class _PrimaryRole(CheckedConnection):
    def check_server(self, about: Mapping[bytes, Any]) -> None:
        """See `CheckedConnection`."""
        super().check_server(about)
        # During a failover, Sentinels may report a primary that has become a replica already.
        if about.get(b"role") == b"replica":
            raise errors.ConnectionError(f"the server at {self.host}:{self.port} is a replica; waiting for a primary")


class PrimaryConnection(_PrimaryRole):
    """Connects to the address of the primary at that time, and makes sure that the server is a primary."""

    def __init__(self, *, address: "PrimaryAddress", **options: Any) -> None:
        super().__init__(**options)
        self._address = address

    async def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        """Connect if necessary."""
        if self.is_connected:
            return
        self.host, self.port = await self._address.find()
        # redis-py returns to it after an announced maintenance.
        self.orig_host_address = self.host
        await super().connect_check_health(*arguments, **options)
        self._address.confirm((self.host, self.port))

    async def close_if_unusable(self) -> None:
        """See `CheckedConnection`."""
        if self.is_connected and self._address.is_former((self.host, self.port)):
            # A former primary that was cut off may still accept writes, which are lost.
            await self.disconnect(nowait=True)
        await super().close_if_unusable()


class SentinelConnection(CheckedConnection):
    """Makes sure that the server is a Sentinel."""

    def check_server(self, about: Mapping[bytes, Any]) -> None:
        """See `CheckedConnection`."""
        if about.get(b"mode") != b"sentinel":
            raise NoQueueThere("the server is not a Sentinel; without Sentinels, write redis://host:6379/0")


class Redirected(errors.ResponseError):
    """The command was not executed, because another node owns the slot or is about to own it.

    Attributes:
        address: the reported address of the other node.
        is_asking: whether only this command is to be sent to that node, after `ASKING`. Otherwise, the slot has moved.
    """

    def __init__(self, address: Address, *, is_asking: bool) -> None:
        super().__init__("the keys are moving to another node of the cluster")
        self.address = address
        self.is_asking = is_asking


class NodeConnection(_PrimaryRole):
    """Reports to the map of slots whether a node of a cluster is still the primary of its slots."""

    def __init__(self, *, node: "ClusterNode", **options: Any) -> None:
        super().__init__(**options)
        self._node = node

    async def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        """Connect if necessary."""
        if self.is_connected:
            return
        try:
            await super().connect_check_health(*arguments, **options)
        except (errors.AuthenticationError, errors.NoPermissionError) as error:
            # Each node has its own users.
            raise type(error)(f"{error} (node {self.host}:{self.port})") from error
        except (errors.RedisError, OSError):
            self._node.suspect()
            raise
        self._node.slots.confirm(self._node.address)

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """See `CheckedConnection`."""
        try:
            return await super().read_response(*arguments, **options)
        except (errors.ConnectionError, errors.TimeoutError, OSError):
            self._node.suspect()
            raise

    async def rejected(self, error: errors.ResponseError) -> errors.RedisError:
        """See `CheckedConnection`."""
        if isinstance(error, errors.AskError):
            # MOVED and ASK concern one slot, so the connection remains. Without a host, it is the host of this node.
            address = (error.host or self.host, error.port)
            is_asking = not isinstance(error, errors.MovedError)
            if not is_asking:
                self._node.slots.moved(error.slot_id, address)
            return Redirected(address, is_asking=is_asking)
        if is_of_wrong_server(error):
            self._node.suspect()
        return await super().rejected(error)


class MemberConnection(CheckedConnection):
    """Makes sure that the server is any node of a cluster, to read the map of slots."""

    def check_server(self, about: Mapping[bytes, Any]) -> None:
        """See `CheckedConnection`."""
        super().check_server(about)
        if about.get(b"mode") != b"cluster":
            raise NoQueueThere("the server is not a node of a cluster; without one, write redis://host:6379/0")
