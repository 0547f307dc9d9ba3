"""A primary that Sentinels watch, and replace by one of its replicas when it fails.

The lookup follows Redis' documentation for clients of Sentinel. A Sentinel returns the primary's address, and the server there has to
confirm that it is a primary. A promoted replica is found while Sentinels still reconfigure the others, when redis-py's own
`Sentinel.discover_master` reports that the service is down.
"""

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any

from redis import exceptions as redis_errors
from redis.asyncio import Redis

from ingest.domain.redis_urls.redis_addresses import Address, address_text
from ingest.domain.redis_urls.sentinel_url import SentinelUrl
from ingest.queue.redis.checked_connections import NoQueueThere, connection_options
from ingest.queue.redis.closing_clients import ClosingClient, ClosingPool
from ingest.queue.redis.topology.lookups import Lookups, summary_of
from ingest.queue.redis.topology.port import SoleServer
from ingest.queue.redis.topology.role_connections import PrimaryConnection, SentinelConnection

# Seconds. Several Sentinels may have to be queried within the shortest timeout of a command.
_SENTINEL_TIMEOUT = 0.5
# For less than the four seconds after which the leases of the other side end.
_CONFIRMED_FOR = 2.0


class SentinelTopology(SoleServer):
    """The primary owns all keys. Keeps the contracts of `Topology` and `Owner`."""

    name = "the primary"

    def __init__(self, url: SentinelUrl) -> None:
        self._url = url
        self._primary = PrimaryAddress(url)
        self._votes = SentinelVotes(url, self._primary)

    async def current_address(self) -> str:
        """Return the address of the primary."""
        return address_text(self._primary.confirmed or await self._primary.find())

    async def confirm(self) -> None:
        """Check that the majority of the Sentinels reports the primary of this process. Between checks, it is confirmed for two seconds."""
        await self._votes.confirm()

    def connection_options(self, **defaults: Any) -> dict[str, Any]:
        """Return the options of connections that look up the primary when they connect."""
        return connection_options(self._url.redis_url, PrimaryConnection, **defaults) | {"address": self._primary}


class PrimaryAddress(Lookups):
    """Looks up the address of the primary, for all connections of a topology."""

    def __init__(self, url: SentinelUrl, uniform: Callable[[float, float], float] = random.uniform) -> None:
        super().__init__(uniform)
        self._url = url
        # The Sentinel that responded last comes first.
        self._sentinels = list(url.sentinels)
        self._found: Address = ("", 0)
        self._primary: Address | None = None

    @property
    def confirmed(self) -> Address | None:
        """Where the primary accepted a connection last."""
        return self._primary

    async def find(self) -> Address:
        """Return where to connect.

        Raises:
            ConnectionError: no Sentinel responds.
            NoQueueThere: the Sentinels deny access, or do not watch the service.
        """
        await self.refresh()
        return self._url.reached_at.get(self._found, self._found)

    def confirm(self, address: Address) -> None:
        """Note that the server at an address is the primary. Connections to another one are closed before their next command."""
        self.unconfirmed = 0
        self._primary = address

    def is_former(self, address: Address) -> bool:
        """Whether a connection has found another primary since then."""
        return self._primary is not None and self._primary != address

    async def look_up(self) -> redis_errors.RedisError | None:
        """Query one Sentinel after the other."""
        failures: dict[str, Exception] = {}
        for host, port in list(self._sentinels):
            # The last one until it responds, so that a lookup that is cancelled here is not repeated with the same Sentinel.
            self._sentinels.remove((host, port))
            self._sentinels.append((host, port))
            try:
                self._found = await _reported_by(self._url, (host, port))
            except (redis_errors.RedisError, OSError) as error:
                failures[f"Sentinel {host}:{port}"] = error
                continue
            self._sentinels.remove((host, port))
            self._sentinels.insert(0, (host, port))
            return None
        return summary_of(failures)


class SentinelVotes:
    """The Sentinels' reports that the server of this process is still the primary.

    In a split network, a former primary accepts writes on its side. Only the side with the majority of the Sentinels may promote another.
    """

    def __init__(self, url: SentinelUrl, primary: PrimaryAddress) -> None:
        self._url = url
        self._primary = primary
        self._sentinels = [*url.sentinels]
        self._needed = len(url.sentinels) // 2 + 1
        self._turn = asyncio.Lock()
        self._checked_at = -_CONFIRMED_FOR
        self._is_confirmed = False

    async def confirm(self) -> None:
        """See `Topology.confirm`."""
        if (server := self._primary.confirmed) is None:
            return  # the first command asks the Sentinels
        called_at = time.monotonic()
        async with self._turn:
            # Callers that have waited for a check share its result.
            if self._checked_at < called_at and not (
                self._is_confirmed and called_at < self._checked_at + _CONFIRMED_FOR
            ):
                self._checked_at = time.monotonic()
                self._is_confirmed = await self._check(server)
        if not self._is_confirmed:
            raise redis_errors.ConnectionError(
                f"fewer than {self._needed} of {len(self._sentinels)} Sentinels confirm that {address_text(server)} is the primary"
            )

    async def _check(self, server: Address) -> bool:
        votes = 0
        for sentinel in [*self._sentinels]:
            if await self._confirms(sentinel, server):
                votes += 1
                if votes == self._needed:
                    return True
            else:
                # Next time it is asked last, because it may have taken the whole timeout.
                self._sentinels.remove(sentinel)
                self._sentinels.append(sentinel)
        return False

    async def _confirms(self, sentinel: Address, server: Address) -> bool:
        try:
            found = await _reported_by(self._url, sentinel)
        except (redis_errors.RedisError, OSError):
            return False
        return self._url.reached_at.get(found, found) == server


async def _reported_by(url: SentinelUrl, address: Address) -> Address:
    """Return the address of the primary that a Sentinel reports."""
    async with sentinel_client(url, address, _SENTINEL_TIMEOUT) as sentinel:
        reply: Any = await sentinel.sentinel_get_master_addr_by_name(url.service, return_responses=True)
    if reply is None:
        raise NoQueueThere(f"does not watch a service {url.service!r}")
    name, number = reply
    return name.decode() if isinstance(name, bytes) else str(name), int(number)


def sentinel_client(url: SentinelUrl, address: Address, timeout: float) -> Redis:
    """Return a client of one Sentinel, whose connections and commands take at most `timeout` seconds."""
    options = connection_options(url.redis_url, SentinelConnection)
    # Certificates, and how connections are made, but not the user of Redis.
    options = {name: value for name, value in options.items() if name not in {"username", "password", "db"}}
    options |= dict(zip(("host", "port"), address, strict=True)) | {"username": url.username, "password": url.password}
    options |= {"socket_timeout": timeout, "socket_connect_timeout": timeout}
    return ClosingClient.from_pool(ClosingPool(**options))
