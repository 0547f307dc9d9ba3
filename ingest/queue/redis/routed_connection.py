"""Connections for the commands that are sent most often, one to each node of a cluster that owns their keys."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast

from ingest.queue.redis.direct_connection import DirectConnection
from ingest.queue.redis.routing import Command, Routed
from ingest.queue.redis.script_call import RunsScripts
from ingest.queue.redis.topology import Owner, Server, Topology, topology_of
from ingest.queue.redis.topology.cluster import ClusterNode, ClusterTopology, SlotOwner


class RoutedConnection(Routed, RunsScripts):
    """Sends each command over a connection to the node that owns its keys, made when it is needed.

    One command after the other goes over each connection, which `line_to` makes. A command that blocks delays others for the same node
    only. See `Routed.place` for `at`.
    """

    def __init__(self, at: ClusterTopology | SlotOwner, line_to: Callable[[ClusterNode], DirectConnection]) -> None:
        self.place(at)
        self._line_to = line_to
        self._lines: dict[ClusterNode, DirectConnection] = {}

    async def call(self, *parts: str | bytes | memoryview | int) -> Any:
        """Send a command to the node that owns its keys, and return its reply, as Redis gives it."""
        return await self.route((parts, {}))

    async def call_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands in one write to each node, concurrently, and return their replies in order, see `route_all`."""
        return await self.route_all([(command, {}) for command in commands])

    async def close_if_idle(self) -> None:
        """Close the connections that no command uses. The next commands open them again."""
        for line in list(self._lines.values()):
            await line.close_if_idle()

    async def disconnect(self) -> None:
        """Close all connections. The next commands open them again."""
        for line in list(self._lines.values()):
            await line.disconnect()

    async def send_one(self, node: ClusterNode, command: Command) -> Any:
        """See `Routed`."""
        return await (await self._line(node)).call(*command[0])

    async def send_together(self, node: ClusterNode, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        """See `Routed`. No command is part of a transaction."""
        del transaction
        return await (await self._line(node)).call_all([command for command, _ in commands])

    async def _line(self, node: ClusterNode) -> DirectConnection:
        if (line := self._lines.get(node)) is None:
            line = self._lines[node] = self._line_to(node)
            for former in [
                each for each in self._lines if each is not node and not self.topology.slots.is_primary(each.address)
            ]:
                await self._lines[former].close_if_idle()
        return line


QueueConnection = DirectConnection | RoutedConnection


@asynccontextmanager
async def open_direct(
    at: str | Owner | Topology, within: float, on_loss: Callable[[], Awaitable[None]] | None = None
) -> AsyncIterator[QueueConnection]:
    """Open a connection to the Redis at a URL, of a topology, or of an owner.

    Args:
        at: a URL, a topology or an owner.
        within: seconds within which a reply has to come.
        on_loss: called when a connection is lost.
    """
    at = topology_of(at) if isinstance(at, str) else at
    connect = partial(DirectConnection, within=within, on_loss=on_loss)
    connection: QueueConnection
    if isinstance(at, ClusterTopology | SlotOwner):
        connection = RoutedConnection(at, connect)
    else:
        connection = connect(cast("Server", at))
    try:
        yield connection
    finally:
        await connection.disconnect()
