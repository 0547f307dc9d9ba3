"""The port of a topology: one Redis, a primary that Sentinels watch, or the nodes of a cluster."""

from collections.abc import Sequence
from typing import Any, Protocol


class Owner(Protocol):
    """The server that owns some keys, whichever it is at the moment. One command may name all keys with equal owners."""

    def connection_options(self, **defaults: Any) -> dict[str, Any]:
        """Return the options of a pool of connections to this server. Options of the URL override the defaults.

        Each connection finds the server when it connects. A connection that is rejected by a server without the keys, or
        by a replica, is closed, so that the next command finds the server again. Its errors are redis-py's.
        """


class Topology(Protocol):
    """The servers at one URL."""

    def owner_of(self, key: str) -> Owner:
        """Return the owner of a key, without waiting for a server. In a cluster, keys of one slot have equal owners."""

    async def primaries(self) -> Sequence[Owner]:
        """Return all servers that own keys, for commands that concern a whole server, such as `SCAN` and `INFO`."""
