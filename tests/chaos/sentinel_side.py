"""A Redis that Sentinels watch."""

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from proxy import Proxy
from sentinel_set import SentinelSet

from chaos.disk import disk
from chaos.plan import Fault, Kind
from chaos.redis_side import OPTIONS_OF_REPLICATED, Place, Way, have_files, nat_options, pick, program
from ingest.lab.servers import ValkeyServer

# ms. On a busy machine, a shorter time begins further failovers.
_DOWN_AFTER = 1_500


class SentinelSide:
    """A primary and its replica, which three Sentinels exchange."""

    def __init__(self, watched: SentinelSet, proxies: Mapping[int, Proxy]) -> None:
        self._watched = watched
        self._proxies = proxies
        self.servers = watched.servers

    @classmethod
    @contextmanager
    def open(cls, folder: Path, binary: Path | None) -> Iterator["SentinelSide"]:
        """Start the servers, the Sentinels and the proxies."""
        folder.mkdir(mode=0o700)
        with ExitStack() as stack:
            for name in ("primary", "replica"):
                stack.enter_context(disk(folder / name))
            watched = stack.enter_context(
                SentinelSet.open(program(binary, folder), folder, down_after=_DOWN_AFTER, **OPTIONS_OF_REPLICATED)
            )
            proxies = {server.port: stack.enter_context(Proxy(server.port)) for server in watched.servers}
            yield cls(watched, proxies)

    @property
    def url(self) -> str:
        return self._watched.url(options=nat_options(self._proxies))

    @property
    def straight_url(self) -> str:
        return self._watched.url()

    async def attach(self) -> None:
        await self._watched.become_ready()

    async def primaries(self) -> Sequence[Place]:
        primary = await self._watched.primary()
        return [Place(primary, self._proxies[primary.port])]

    async def heal(self) -> None:
        await self._watched.become_complete()
        await have_files(self.servers)

    async def keepers(self) -> Sequence[ValkeyServer]:
        return [await self._watched.primary()]

    def ways(self) -> Mapping[Kind, Way]:
        return {
            Kind.REDIS_FAILOVER: self._fail_over,
            Kind.REDIS_REPLACED: self._replace,
            Kind.REDIS_SENTINEL: self._kill_sentinel,
            Kind.REDIS_ROLLING: self._restart_all,
        }

    async def _fail_over(self, _: Fault) -> str:
        await self._watched.begin_failover()
        await self.heal()
        return f"port {(await self._watched.primary()).port} is the primary"

    async def _replace(self, fault: Fault) -> str:
        primary = await self._watched.primary()
        await asyncio.to_thread(primary.kill)
        await self._watched.await_other_than(primary)
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(primary.start)
        return f"port {(await self._watched.primary()).port} is the primary"

    async def _kill_sentinel(self, fault: Fault) -> str:
        sentinel = pick(self._watched.sentinels, fault)
        await asyncio.to_thread(sentinel.kill)
        await asyncio.sleep(fault.seconds)
        await asyncio.to_thread(sentinel.start)
        return "watches again"

    async def _restart_all(self, fault: Fault) -> str:
        for server in [*self._watched.servers, *self._watched.sentinels]:
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(fault.seconds)
            await asyncio.to_thread(server.start)
            await self.heal()
        return f"port {(await self._watched.primary()).port} is the primary"
