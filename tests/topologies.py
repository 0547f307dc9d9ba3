"""The places where a queue of a test may be: on one server, on a primary that Sentinels watch, or in a cluster."""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from cluster_set import ClusterSet
from redis import DriverInfo
from redis.asyncio import Redis
from sentinel_set import SentinelSet
from servers.kinds import KINDS, Kind

from ingest.lab.servers import ValkeyServer

# redis-py would parse the metadata of its package for every connection.
DRIVER_INFO = DriverInfo()
Topology = Literal["standalone", "sentinel", "cluster"]


@dataclass(frozen=True)
class Place:
    """A kind of server, and how servers of this kind are combined."""

    kind: Kind
    topology: Topology = "standalone"

    @property
    def name(self) -> str:
        """The name in the names of tests, which is the kind's for a single server."""
        return self.kind.name if self.topology == "standalone" else f"{self.kind.name}-{self.topology}"


STANDALONE = [Place(kind) for kind in KINDS]
# The commands at a primary are the same with Sentinels: what differs has tests on each kind elsewhere.
SENTINEL = Place(KINDS[0], "sentinel")
CLUSTERS = [Place(kind, "cluster") for kind in KINDS]


class SharedServers:
    """Shared servers for tests that do not change them, started at the first use."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder
        self.server = cache(self._start_server)
        self.sentinels = cache(self._start_sentinels)
        self.cluster = cache(self._start_cluster)

    @classmethod
    @contextmanager
    def open(cls) -> Iterator["SharedServers"]:
        """The servers, which are not running yet."""
        with ExitStack() as stack:
            yield cls(stack, Path(stack.enter_context(TemporaryDirectory(prefix="ingest-"))))

    def url(self, place: Place) -> str:
        """Where the service connects."""
        match place.topology:
            case "standalone":
                return self.server(place.kind).url
            case "sentinel":
                return self.sentinels(place.kind).url()
            case "cluster":
                return self.cluster(place.kind).url()

    async def server_of(self, place: Place, key: str) -> ValkeyServer:
        """The server that owns a key."""
        match place.topology:
            case "standalone":
                return self.server(place.kind)
            case "sentinel":
                return await self.sentinels(place.kind).primary()
            case "cluster":
                return await self.cluster(place.kind).owner(key)

    @asynccontextmanager
    async def client_of(self, place: Place, key: str) -> AsyncIterator[Redis]:
        """A plain client for a key and for all others in its slot."""
        async with Redis.from_url((await self.server_of(place, key)).url, driver_info=DRIVER_INFO) as client:
            yield client

    def _start_server(self, kind: Kind) -> ValkeyServer:
        return self._stack.enter_context(kind.server(self._folder / kind.name))

    def _start_sentinels(self, kind: Kind) -> SentinelSet:
        folder = self._folder / f"{kind.name}-sentinel"
        folder.mkdir()
        watched = self._stack.enter_context(SentinelSet.open(kind, folder))
        _finish(watched.become_ready())
        return watched

    def _start_cluster(self, kind: Kind) -> ClusterSet:
        # Without replicas, which only cost here.
        cluster = self._stack.enter_context(ClusterSet.open(kind, self._folder, replicas=0))
        _finish(cluster.become_ready())
        return cluster


def _finish(starting: Coroutine[Any, Any, None]) -> None:
    """Wait for it, in a fixture with or without an event loop."""
    with ThreadPoolExecutor(1) as executor:
        executor.submit(asyncio.run, starting).result()
