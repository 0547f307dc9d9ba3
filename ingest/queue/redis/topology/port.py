"""The port of a topology: one Redis, a primary that Sentinels watch, or the nodes of a cluster."""

from typing import Any, Protocol


class Owner(Protocol):
    """The server that owns some keys, whichever it is at the moment. Keys with equal owners may share commands."""

    def connection_options(self, **defaults: Any) -> dict[str, Any]:
        """Return the options of a pool of connections to this server. Options of the URL override the defaults.

        Each connection finds the server when it connects. A connection that is rejected by a server without the keys, or
        by a replica, is closed, so that the next command finds the server again. Its errors are redis-py's.
        """


class Topology(Protocol):
    """The servers at one URL."""

    def owner_of(self, key: str) -> Owner:
        """Return the owner of a key, without waiting for a server."""
