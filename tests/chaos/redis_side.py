"""How Redis runs in a chaos run: one primary behind a proxy, a set that Sentinels watch, or a cluster.

Clients of the service reach each server through its own proxy. Checks and foreign clients connect directly.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit, urlunsplit

from crash.power import POWERED, noting
from proxy import Proxy
from redis.asyncio import Redis
from redis.exceptions import RedisError
from servers.get import version_of
from servers.kinds import KINDS
from servers.kinds import Kind as ServerKind
from support import eventually

from chaos.plan import Fault, Kind
from chaos.written import OPTIONS
from ingest.lab.servers import ValkeyServer

# As in docs/deploy/sentinel.md, with a shorter lag: a primary without its replica accepts no orders.
_GUARD = {"min-replicas-to-write": "1", "min-replicas-max-lag": "2"}
OPTIONS_OF_REPLICATED = {name.replace("-", "_"): value for name, value in (OPTIONS | _GUARD).items()}
"""Options of servers with replicas, as arguments by keyword."""

T = TypeVar("T")
Way = Callable[[Fault], Awaitable[str]]


@dataclass(frozen=True, slots=True)
class Place:
    """A server, and the proxy through which the service reaches it."""

    server: ValkeyServer
    proxy: Proxy


class RedisSide(Protocol):
    """The Redis of a run.

    Attributes:
        servers: the servers that may lose confirmed entries in a failover.
    """

    @property
    def servers(self) -> Sequence[ValkeyServer]: ...

    @property
    def url(self) -> str:
        """Where the service connects."""

    @property
    def straight_url(self) -> str:
        """The same by a way that nothing happens to."""

    async def attach(self) -> None:
        """Make replicas of the replicas, and wait until all is ready."""

    async def primaries(self) -> Sequence[Place]:
        """The servers that accept writes."""

    async def heal(self) -> None:
        """Wait until each primary has its replica, which has everything that the primary had at the beginning of this call."""

    async def keepers(self) -> Sequence[ValkeyServer]:
        """The servers whose entries are not lost. Their replicas have everything."""

    def ways(self) -> Mapping[Kind, Way]:
        """The faults that only this kind of Redis has."""


def nat_options(proxies: Mapping[int, Proxy]) -> str:
    """The options of a URL by which clients connect to a proxy instead of the reported port."""
    return "".join(f"&nat=127.0.0.1:{port},127.0.0.1:{proxy.port}" for port, proxy in proxies.items())


def by_way_of(proxy: Proxy, url: str) -> str:
    """The URL of the same server through a proxy."""
    parts = urlsplit(url)
    account, at, _ = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{account}{at}127.0.0.1:{proxy.port}"))


async def have_files(servers: Sequence[ValkeyServer]) -> None:
    """Wait until each running server has an append-only file. Before, it rejects a request to stop."""

    async def have_all() -> bool:
        with suppress(RedisError, OSError):
            for server in servers:
                if server.is_running():
                    async with Redis.from_url(server.url) as client:
                        if (await client.info("persistence"))["aof_rewrite_in_progress"]:
                            return False
            return True
        return False

    await eventually(have_all)


def pick(victims: Sequence[T], fault: Fault) -> T:
    """The victim that the plan chose."""
    return victims[int(fault.choice * len(victims))]


def program(binary: Path | None, folder: Path) -> ServerKind:
    """The program to use for Redis, on a host whose power can fail. It needs this folder."""
    kind = KINDS[0]
    if binary:
        kind = ServerKind("valkey" if "valkey" in binary.name else "redis", version_of(binary), binary)
    return noting(kind, folder) if POWERED else kind
