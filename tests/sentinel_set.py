"""A primary, a replica and three Sentinels that watch them, all of one kind of server."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from hosted_server import HostedServer
from node_network import NodeNetwork
from redis.asyncio import Redis
from redis.exceptions import RedisError
from servers.kinds import Kind
from support import eventually

from ingest.lab.servers import ValkeyServer

SERVICE = "orders"
_QUORUM = 2
_OFTEN = 0.05
# Sentinel's intervals in milliseconds. A short ping-period would make replicas count as unsuitable.
_INTERVALS = {"info-period": 200, "publish-period": 200, "ask-period": 100}
_DEFAULT_INTERVALS = {"info-period": 10_000, "publish-period": 2_000, "ask-period": 1_000}


class SentinelServer(HostedServer):
    """A Sentinel that watches the server `watched`, and finds it down after some milliseconds without a reply."""

    def __init__(
        self,
        folder: Path,
        kind: Kind,
        watched: HostedServer,
        password: str,
        network: NodeNetwork | None,
        down_after: int,
    ) -> None:
        super().__init__(folder, kind, password, watched.tls_options, network)
        self._watched = watched
        self._down_after = down_after

    def _local_command(self, port: int) -> Sequence[str | Path]:
        configuration = self.directory / "sentinel.conf"
        if not configuration.exists():
            # Sentinel writes its state into this file.
            lines = [
                f"bind {self.host}",
                f"requirepass {self.password}",
                f"sentinel sentinel-pass {self.password}",
                f"sentinel monitor {SERVICE} {self._watched.host} {self._watched.tls_port or self._watched.port} {_QUORUM}",
                f"sentinel auth-pass {SERVICE} {self._watched.password}",
                f"sentinel down-after-milliseconds {SERVICE} {self._down_after}",
                f"sentinel failover-timeout {SERVICE} 3000",
                f"port {port}",
                *(f"{name} {value}" for name, value in self._options.items() if name.startswith("tls-")),
            ]
            configuration.touch(mode=0o600)
            configuration.write_text("\n".join(lines) + "\n")
        return [self._binary, configuration, "--sentinel"]


class SentinelSet:
    """The running servers.

    Attributes:
        servers: the first primary and its replica.
        sentinels: the three Sentinels.
    """

    def __init__(self, servers: Sequence[HostedServer], sentinels: Sequence[SentinelServer]) -> None:
        self.servers = servers
        self.sentinels = sentinels

    @classmethod
    @contextmanager
    def open(
        cls, kind: Kind, folder: Path, *, network: NodeNetwork | None = None, down_after: int = 500, **options: str
    ) -> Iterator["SentinelSet"]:
        """Start all. They are a set after `become_ready`.

        Args:
            kind: the program.
            folder: for the servers' folders.
            network: gives each server a host that can be cut off.
            down_after: milliseconds after which the primary counts as down.
            options: lines of the configuration of the primary and the replica, with `_` for `-`. Those of TLS are for the Sentinels
                as well.
        """
        password, sentinel_password = secrets.token_urlsafe(18), secrets.token_urlsafe(18)
        given = {name.replace("_", "-"): value for name, value in options.items()}
        lines = {"masterauth": password, "repl-diskless-sync-delay": "0", **given}
        with ExitStack() as stack:
            primary = stack.enter_context(HostedServer(folder / "primary", kind, password, lines, network))
            replica = stack.enter_context(HostedServer(folder / "replica", kind, password, lines, network))
            sentinels = [
                stack.enter_context(
                    SentinelServer(folder / f"sentinel-{number}", kind, primary, sentinel_password, network, down_after)
                )
                for number in range(3)
            ]
            yield cls([primary, replica], sentinels)

    @property
    def hosts(self) -> str:
        """The addresses of the Sentinels, as in a URL."""
        return ",".join(sentinel.address for sentinel in self.sentinels)

    def url(self, *, hosts: str = "", options: str = "") -> str:
        """Where clients connect."""
        password = quote(self.sentinels[0].password, safe="")
        account = quote(self.servers[0].password, safe="")
        return f"redis+sentinel://:{account}@{hosts or self.hosts}/{SERVICE}/0?sentinel_password={password}{options}"

    async def become_ready(self) -> None:
        """Make the second server the replica of the first, and wait until all are complete."""
        # A restarted server has no such line in its configuration, because it may have been promoted.
        first, second = self.servers
        await _ask(second, "REPLICAOF", first.host, first.tls_port or first.port)
        await self.become_complete()

    async def become_complete(self) -> None:
        """Wait until the Sentinels have found each other and a replica that is up to date."""
        await self._look_every(_INTERVALS)
        await eventually(self._is_complete, every=_OFTEN)

    async def look_seldom(self) -> None:
        """Let the Sentinels look at the servers at their default intervals, which no operator can configure."""
        await self._look_every(_DEFAULT_INTERVALS)

    async def _look_every(self, intervals: Mapping[str, int]) -> None:
        for sentinel in self.sentinels:
            for name, milliseconds in intervals.items():
                await _ask(sentinel, "SENTINEL", "DEBUG", name, milliseconds)

    async def fail_over_carefully(self) -> None:
        """Exchange the roles like an operator who first lets the primary reject writes as soon as it loses a replica."""
        await _ask(await self.primary(), "CONFIG", "SET", "min-replicas-to-write", len(self.servers) - 1)
        await self.fail_over()

    async def primary(self) -> HostedServer:
        """The server that most Sentinels report as the primary."""
        ports = [(await _state(sentinel))["port"] for sentinel in self.sentinels if sentinel.is_running()]
        port = max(set(ports), key=ports.count)
        return next(server for server in self.servers if port in {server.port, server.tls_port})

    async def fail_over(self) -> None:
        """Let a Sentinel exchange the roles, like an operator."""
        before = await self.primary()
        await self.begin_failover()
        await self.await_other_than(before, self._fail_over_again)

    async def _fail_over_again(self, before: HostedServer) -> None:
        """Repeat a failover that the Sentinel has aborted, for example because the replica did not respond in time."""
        state = await _state(self.sentinels[0])
        if state["port"] in {before.port, before.tls_port} and "failover_in_progress" not in state["flags"]:
            with suppress(RedisError):
                await _ask(self.sentinels[0], "SENTINEL", "FAILOVER", SERVICE)

    async def begin_failover(self) -> None:
        """Let a Sentinel begin to exchange the roles."""

        async def is_accepted() -> bool:
            # Until this Sentinel has heard from the replica.
            with suppress(RedisError):
                return bool(await _ask(self.sentinels[0], "SENTINEL", "FAILOVER", SERVICE))
            return False

        await eventually(is_accepted, every=_OFTEN)

    async def await_other_than(
        self, before: HostedServer, meanwhile: Callable[[HostedServer], Awaitable[None]] | None = None
    ) -> None:
        """Wait until all Sentinels report another primary, which accepts writes."""

        async def is_replaced() -> bool:
            with suppress(RedisError, OSError):
                if meanwhile is not None:
                    await meanwhile(before)
                states = [await _state(sentinel) for sentinel in self.sentinels if sentinel.is_running()]
                after = await self.primary()
                return all(state["port"] not in {before.port, before.tls_port} for state in states) and (
                    (await _ask(after, "ROLE"))[0] == b"master"
                )
            return False

        await eventually(is_replaced, every=_OFTEN)

    async def rejoin(self, server: HostedServer) -> None:
        """Restart a server that is not the primary, as its replica, and wait until it is up to date."""
        primary = await self.primary()
        await asyncio.to_thread(server.restart)
        await _ask(server, "REPLICAOF", primary.host, primary.port)
        await self.replicate()

    async def replicate(self) -> None:
        """Wait until the replica has everything."""
        await eventually(self._is_in_step, every=_OFTEN)

    async def _is_in_step(self) -> bool:
        with suppress(RedisError, OSError, KeyError):
            before, after = [
                {each["role"]: each for each in [await _replication(server) for server in self.servers]} for _ in "ab"
            ]
            # Read after the primary, which is always a little ahead while it has clients.
            return bool(
                after["slave"]["master_link_status"] == "up"
                and after["slave"]["slave_repl_offset"] >= before["master"]["master_repl_offset"]
            )
        return False

    async def _is_complete(self) -> bool:
        with suppress(RedisError, OSError, KeyError):
            states = [await _state(sentinel) for sentinel in self.sentinels]
            return await self._is_in_step() and all(
                (state["num-slaves"], state["num-other-sentinels"]) == (1, 2) and state["flags"] == "master"
                for state in states
            )
        return False


async def _state(sentinel: SentinelServer) -> dict[str, Any]:
    async with Redis.from_url(sentinel.url, protocol=2) as client:
        masters: Any = await client.sentinel_masters()
        return dict(masters[SERVICE])


async def _replication(server: ValkeyServer) -> dict[str, Any]:
    async with Redis.from_url(server.url) as client:
        return dict(await client.info("replication"))


async def _ask(server: ValkeyServer, *command: str | bytes | int) -> Any:
    async with Redis.from_url(server.url) as client:
        return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # redis-py leaves it so
