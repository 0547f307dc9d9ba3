"""Connections to one node of a cluster, which report to the map of slots whether the node is still the primary of its slots."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from redis import exceptions as redis_errors

from ingest.domain.redis_urls.redis_addresses import Address
from ingest.queue.redis.checked_connections import CheckedTcp, CheckedTls, NoQueueThere, is_of_wrong_server

if TYPE_CHECKING:
    _Base = CheckedTcp
else:
    _Base = object


class Redirected(redis_errors.ResponseError):
    """The command was not executed, because another node owns the slot or is about to own it.

    Attributes:
        address: the reported address of the other node.
        is_asking: whether only this command is to be sent to that node, after `ASKING`. Otherwise, the slot has moved.
    """

    def __init__(self, address: Address, *, is_asking: bool) -> None:
        super().__init__("the keys are moving to another node of the cluster")
        self.address = address
        self.is_asking = is_asking


class ConnectedNode(Protocol):
    """The node of a connection."""

    def confirm(self) -> None:
        """Note that the node accepts connections and is a primary."""

    def suspect(self) -> None:
        """Note that the node may have been replaced."""

    def moved(self, slot: int, address: Address) -> None:
        """Note that another node owns a slot."""


class _Node(_Base):
    def __init__(self, *, node: ConnectedNode, **options: Any) -> None:
        super().__init__(**options)
        self._node = node

    async def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        if self.is_connected:
            return
        try:
            await super().connect_check_health(*arguments, **options)
        except (redis_errors.AuthenticationError, redis_errors.NoPermissionError) as error:
            # Each node has its own users.
            raise type(error)(f"{error} (node {self.host}:{self.port})") from error
        except (redis_errors.RedisError, OSError):
            self._node.suspect()
            raise
        self._node.confirm()

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        try:
            return await super().read_response(*arguments, **options)
        except (redis_errors.ConnectionError, redis_errors.TimeoutError, OSError):
            self._node.suspect()
            raise

    async def rejected(self, error: redis_errors.ResponseError) -> redis_errors.RedisError:
        if isinstance(error, redis_errors.AskError):
            # MOVED and ASK concern one slot, so the connection remains. Without a host, it is the host of this node.
            address = (error.host or self.host, error.port)
            is_asking = not isinstance(error, redis_errors.MovedError)
            if not is_asking:
                self._node.moved(error.slot_id, address)
            return Redirected(address, is_asking=is_asking)
        if is_of_wrong_server(error):
            self._node.suspect()
        return await super().rejected(error)

    def check_server(self, about: Mapping[bytes, Any]) -> None:
        super().check_server(about)
        if about.get(b"role") == b"replica":
            raise redis_errors.ConnectionError(
                f"the node at {self.host}:{self.port} is a replica; waiting for a primary"
            )


class NodeTcp(_Node, CheckedTcp):
    """A connection without TLS."""


class NodeTls(_Node, CheckedTls):
    """A connection with TLS."""


class _Member(_Base):
    def check_server(self, about: Mapping[bytes, Any]) -> None:
        super().check_server(about)
        if about.get(b"mode") != b"cluster":
            raise NoQueueThere("the server is not a node of a cluster; without one, write redis://host:6379/0")


class MemberTcp(_Member, CheckedTcp):
    """A connection to any node, to read the map of slots, without TLS."""


class MemberTls(_Member, CheckedTls):
    """A connection to any node, to read the map of slots, with TLS."""
