"""One Redis behind a proxy."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from failover import Pair
from proxy import Proxy

from chaos.plan import Fault, Kind
from chaos.redis_side import Place, Way, by_way_of
from ingest.lab.servers import ValkeyServer


class StandaloneSide:
    """A primary behind a proxy, with a replica that takes its place by `FAILOVER`, which loses no confirmed write."""

    def __init__(self, pair: Pair, straight: Proxy) -> None:
        self._pair = pair
        self._straight = straight
        self.servers: Sequence[ValkeyServer] = ()

    @classmethod
    @contextmanager
    def open(cls, primary: ValkeyServer, replica: ValkeyServer) -> Iterator["StandaloneSide"]:
        """Start the replica of a running server, and the proxies."""
        replica.password = primary.password
        with replica, Proxy(primary.port) as proxy, Proxy(primary.port) as straight:
            yield cls(Pair(primary, replica, proxy), straight)

    @property
    def url(self) -> str:
        return self._pair.url

    @property
    def straight_url(self) -> str:
        return by_way_of(self._straight, self._pair.url)

    async def attach(self) -> None:
        await self._pair.attach()

    async def primaries(self) -> Sequence[Place]:
        return [Place(self._pair.primary, self._pair.proxy)]

    async def heal(self) -> None:
        """The roles change without losses, so that nothing has to be waited for."""

    async def keepers(self) -> Sequence[ValkeyServer]:
        return [self._pair.primary]

    def ways(self) -> Mapping[Kind, Way]:
        return {
            Kind.REDIS_FAILOVER: self._fail_over,
            Kind.REDIS_DEMOTED: self._demote,
        }

    async def _fail_over(self, _: Fault) -> str:
        """Lead only new connections to the new primary, while open connections stay at the old one."""
        await self._change_roles()
        self._pair.lead()
        return f"port {self._pair.primary.port} is the primary"

    async def _demote(self, fault: Fault) -> str:
        """Let the proxy lead to the replica for some time."""
        await self._change_roles()
        await asyncio.sleep(fault.seconds)
        await self._change_roles()
        return "the primary again"

    async def _change_roles(self) -> None:
        """Hand over to the replica without losing confirmed writes. The workers' proxy is unchanged."""
        await self._pair.hand_over()
        self._straight.lead_to(self._pair.primary.port)
        await asyncio.to_thread(self._straight.cut)
