"""A Redis server with a replica, behind a proxy that leads to the primary, like a DNS name, a virtual IP or a Kubernetes
service. The servers really change roles, and old connections stay at the old primary."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from proxy import Proxy
from redis.asyncio import Redis
from redis.exceptions import RedisError
from support import eventually

from ingest.lab.servers import ValkeyServer
from ingest.lab.servers.server import free_port

_PAUSE_MS = 10_000
_OFTEN = 0.05


class Pair:
    """Two running servers with the same password, which are a pair after `attach`.

    Attributes:
        primary: the server that accepts writes.
        replica: the other server.
        proxy: the proxy for clients, which leads to the first primary until `lead` changes that.
    """

    def __init__(self, primary: ValkeyServer, replica: ValkeyServer, proxy: Proxy) -> None:
        self.primary = primary
        self.replica = replica
        self.proxy = proxy

    @classmethod
    @contextmanager
    def open(cls, one: ValkeyServer, other: ValkeyServer) -> Iterator["Pair"]:
        """Start two servers that were made the same way, and the proxy before them."""
        one.password = other.password = secrets.token_urlsafe(18)
        with one, other, Proxy(one.port) as proxy:
            yield cls(one, other, proxy)

    @property
    def url(self) -> str:
        """Where clients connect."""
        parts = urlsplit(self.primary.url)
        return urlunsplit(parts._replace(netloc=f":{parts.password}@127.0.0.1:{self.proxy.port}"))

    async def attach(self) -> None:
        """Make the second server the replica of the first, and wait until it has everything."""
        await self._make_ready()
        await _ask(self.replica, "REPLICAOF", "127.0.0.1", self.primary.port)
        await eventually(self._is_in_step, every=_OFTEN)

    async def hand_over(self) -> None:
        """Change roles by FAILOVER, without losing confirmed writes.

        Connected clients stay at the old primary. New connections go to the same server as before, see `lead`.
        """
        await self._make_ready()
        await eventually(self._is_in_step, every=_OFTEN)
        await _ask(self.primary, "FAILOVER")
        await self._have_swapped()

    async def promote(self) -> None:
        """The same by REPLICAOF, like operators and Sentinel. Writes are paused, so that none is lost."""
        await self._make_ready()
        await _ask(self.primary, "CLIENT", "PAUSE", _PAUSE_MS, "WRITE")
        await eventually(self._is_in_step, every=_OFTEN)
        await _ask(self.replica, "REPLICAOF", "NO", "ONE")
        await _ask(self.primary, "REPLICAOF", "127.0.0.1", self.replica.port)
        await _ask(self.primary, "CLIENT", "UNPAUSE")
        await self._have_swapped()

    def lead(self) -> None:
        """Lead new connections to the primary."""
        self.proxy.lead_to(self.primary.port)

    async def _make_ready(self) -> None:
        """Let each server log in to the other and copy immediately. A restarted server loses these settings."""
        for server in (self.primary, self.replica):
            await _ask(server, "CONFIG", "SET", "masterauth", server.password)
            await _ask(server, "CONFIG", "SET", "repl-diskless-sync-delay", 0)

    async def _have_swapped(self) -> None:
        self.primary, self.replica = self.replica, self.primary
        await eventually(self._is_in_step, every=_OFTEN)

    async def _is_in_step(self) -> bool:
        with suppress(RedisError, OSError, KeyError):
            primary, replica = [await _replication(server) for server in (self.primary, self.replica)]
            return (primary["role"], replica["role"], replica["master_link_status"]) == ("master", "slave", "up") and (
                replica["slave_repl_offset"] >= primary["master_repl_offset"]
            )
        return False


class Shard(Pair):
    """The same two servers as the only shard of a cluster, in which a replica redirects clients (`MOVED`)."""

    @staticmethod
    def options() -> dict[str, str]:
        """The options of each server."""
        return {"cluster_enabled": "yes", "cluster_port": str(free_port()), "cluster_node_timeout": "2000"}

    async def attach(self) -> None:
        await self._make_ready()
        await _ask(self.primary, "CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        bus = (await _ask(self.primary, "CONFIG", "GET", "cluster-port"))[b"cluster-port"]
        await _ask(self.replica, "CLUSTER", "MEET", "127.0.0.1", self.primary.port, bus)
        for condition in (self._follows, self._is_in_step, self._answers):
            await eventually(condition, every=_OFTEN)

    async def hand_over(self) -> None:
        await _ask(self.replica, "CLUSTER", "FAILOVER")
        await self._have_swapped()

    async def _follows(self) -> bool:
        with suppress(RedisError):  # until both are members of the cluster
            return bool(await _ask(self.replica, "CLUSTER", "REPLICATE", await _ask(self.primary, "CLUSTER", "MYID")))
        return False

    async def _answers(self) -> bool:
        with suppress(RedisError):  # until it has found the cluster complete
            return await _ask(self.primary, "GET", "{orders}") is None
        return False


async def _replication(server: ValkeyServer) -> dict[str, Any]:
    async with Redis.from_url(server.url) as client:
        return dict(await client.info("replication"))


async def _ask(server: ValkeyServer, *command: str | bytes | int) -> Any:
    async with Redis.from_url(server.url) as client:
        return await client.execute_command(*command)
