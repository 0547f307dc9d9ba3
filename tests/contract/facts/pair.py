"""A primary and its replica."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from contract.facts.deaf_connection import DeafConnection
from redis.asyncio import Redis
from servers.kinds import Kind
from support import eventually

from ingest.lab.servers import ValkeyServer


@dataclass(frozen=True)
class Pair:
    """Two servers, in step, with a client for each. The replica hears the primary over the line."""

    primary: ValkeyServer
    replica: ValkeyServer
    on_primary: Redis
    on_replica: Redis
    line: DeafConnection


@asynccontextmanager
async def replicated(kind: Kind) -> AsyncIterator[Pair]:
    """Start a pair, and wait until the replica has caught up."""
    async with AsyncExitStack() as stack:
        running = stack.enter_context(ExitStack())
        folder = Path(running.enter_context(TemporaryDirectory(prefix="ingest-")))
        primary = running.enter_context(kind.server(folder / "primary", repl_diskless_sync_delay="0"))
        line = DeafConnection(primary.url)
        port = urlsplit(await stack.enter_async_context(line.open())).port
        options = {"replicaof": f"127.0.0.1 {port}", "masterauth": primary.password}
        replica = running.enter_context(kind.server(folder / "replica", **options))
        on_primary = await stack.enter_async_context(Redis.from_url(primary.url))
        on_replica = await stack.enter_async_context(Redis.from_url(replica.url))

        async def is_in_step() -> bool:
            return (await on_replica.info("replication"))["master_link_status"] == "up"

        await eventually(is_in_step)
        yield Pair(primary, replica, on_primary, on_replica, line)
