"""The port of a topology: one Redis, a primary that Sentinels watch, or the nodes of a cluster."""

from collections.abc import Hashable, Sequence
from typing import Any, Protocol, Self

Owner = Hashable
"""The owner of some keys. One command may name all keys with equal owners. In a cluster, it is a slot."""


class Server(Protocol):
    """One server, or one role, such as the primary of a Sentinel set."""

    def connection_options(self, **defaults: Any) -> dict[str, Any]:
        """Return the options of a pool of connections to this server. Options of the URL override the defaults.

        Each connection finds the server when it connects. A connection that is rejected by a server without the keys, or
        by a replica, is closed, so that the next command finds the server again. Its errors are redis-py's.
        """

    async def current_address(self) -> str:
        """Return where the server is reached at the moment, such as `host:6379`. Its errors are redis-py's."""


class Topology(Protocol):
    """The servers at one URL."""

    def owner_of(self, key: str) -> Owner:
        """Return the owner of a key, without waiting for a server. In a cluster, keys of one slot have equal owners."""

    def last_server_of(self, key: str) -> str:
        """Return the address of the server that owned a key when it was last looked up, without waiting, or else another name of it.

        Calls for one server wait for each other only. It may be out of date, so the commands themselves are still routed.
        """

    async def server_of(self, key: str) -> Server:
        """Return the server that owns a key at the moment. Its errors are redis-py's."""

    async def confirm(self) -> None:
        """Check that the others see the same servers as this process, for a right that only one side of a split network may grant.

        Raises:
            ConnectionError: the majority does not confirm it at the moment.
        """

    async def primaries(self) -> Sequence[Server]:
        """Return all servers that own keys, for commands that concern a whole server, such as `SCAN` and `INFO`."""


class SoleServer:
    """The only server of a topology, which owns all keys. Keeps the contracts of `Owner` and of `Topology`.

    Attributes:
        name: of the server, instead of its address.
    """

    name: str

    def owner_of(self, key: str) -> Self:
        """Return this server."""
        del key
        return self

    def last_server_of(self, key: str) -> str:
        """Return the name of the server."""
        del key
        return self.name

    async def server_of(self, key: str) -> Self:
        """Return this server."""
        del key
        return self

    async def primaries(self) -> tuple[Self]:
        """Return this server."""
        return (self,)
