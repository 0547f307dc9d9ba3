"""Connections for the commands that are sent most often, one to each node of a cluster that owns their keys."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError, NoScriptError, RedisError  # noqa: A004  redis-py's own, which is no OSError

from ingest.queue.redis.direct_connection import DirectConnection
from ingest.queue.redis.routing import MOST_REDIRECTIONS, first_key
from ingest.queue.redis.script_call import ScriptCall, run_scripts
from ingest.queue.redis.topology import Owner, Server, Topology, topology_of
from ingest.queue.redis.topology.cluster import ClusterNode, ClusterTopology, SlotOwner, slot_of
from ingest.queue.redis.topology.node_connections import Redirected


class RoutedConnection:
    """Sends each command over a connection to the node that owns its keys, made when it is needed.

    One command after the other goes over each connection. A command that blocks delays others for the same node only.

    Args:
        topology: the cluster.
        line_to: makes the connection to a node.
        home: the slot whose owner gets commands without a key.
    """

    def __init__(
        self, topology: ClusterTopology, line_to: Callable[[ClusterNode], DirectConnection], home: int | None = None
    ) -> None:
        self._topology = topology
        self._line_to = line_to
        self._home = home
        self._lines: dict[ClusterNode, DirectConnection] = {}

    async def call(self, *parts: str | bytes | memoryview | int) -> Any:
        """Send a command to the node that owns its keys, and return its reply, as Redis gives it."""
        slot = self._slot(parts)
        for _ in range(MOST_REDIRECTIONS):
            node = await self._topology.node_of(slot)
            try:
                return await (await self._line(node)).call(*parts)
            except Redirected as error:
                if error.is_asking:
                    return await self._ask(node.other(error.address), parts)
            except (ConnectionError, OSError):
                node.suspect()
                raise
        raise ConnectionError("the keys move between the nodes of the cluster")

    async def call_all(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """Send commands in one write to each node, concurrently, and return their replies in order.

        The error of a command, or of its node, is an exception among them, so that a node that fails does not concern the others.
        """
        found: list[Any] = [None] * len(commands)
        by_node: dict[ClusterNode, list[int]] = {}
        for number, command in enumerate(commands):
            try:
                node = await self._topology.node_of(self._slot(command))
            except RedisError as error:
                found[number] = error
            else:
                by_node.setdefault(node, []).append(number)

        async def send_to(node: ClusterNode, numbers: list[int]) -> None:
            for number, reply in zip(numbers, await self._at(node, [commands[each] for each in numbers]), strict=True):
                found[number] = reply

        await asyncio.gather(*(send_to(node, numbers) for node, numbers in by_node.items()))
        for number, reply in enumerate(found):
            if isinstance(reply, Redirected):
                found[number] = await self._again(commands[number])
        return found

    async def run(self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """Run a script. A node is sent its text only if it does not have it."""
        call = ScriptCall(script, keys, arguments)
        try:
            return await self.call(*call.by_hash())
        except NoScriptError:
            return await self.call(*call.by_text())

    async def run_all(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """Run scripts as `call_all` sends commands."""
        return await run_scripts(self.call_all, calls)

    async def close_if_idle(self) -> None:
        """Close the connections that no command uses. The next commands open them again."""
        for line in list(self._lines.values()):
            await line.close_if_idle()

    async def disconnect(self) -> None:
        """Close all connections. The next commands open them again."""
        for line in list(self._lines.values()):
            await line.disconnect()

    def _slot(self, command: Sequence[Any]) -> int:
        key = first_key(command)
        slot = self._home if key is None else slot_of(key)
        if slot is None:
            raise ValueError(f"{command[0]!r} names no key")
        return slot

    async def _at(self, node: ClusterNode, commands: Sequence[Sequence[Any]]) -> list[Any]:
        try:
            return await (await self._line(node)).call_all(commands)
        except (RedisError, OSError) as error:
            if isinstance(error, ConnectionError | OSError):
                node.suspect()
            return [error] * len(commands)

    async def _again(self, command: Sequence[Any]) -> Any:
        try:
            return await self.call(*command)
        except (RedisError, OSError) as error:
            return error

    async def _ask(self, node: ClusterNode, parts: Sequence[Any]) -> Any:
        """Send a command to the node to which a slot is migrated."""
        _, reply = await (await self._line(node)).call_all([("ASKING",), parts])
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _line(self, node: ClusterNode) -> DirectConnection:
        if (line := self._lines.get(node)) is None:
            line = self._lines[node] = self._line_to(node)
            for former in [each for each in self._lines if each is not node and not self._topology.is_in_use(each)]:
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
    connection: QueueConnection
    match at:
        case ClusterTopology():
            connection = RoutedConnection(at, partial(DirectConnection.to, within=within, on_loss=on_loss))
        case SlotOwner(topology, slot):
            connection = RoutedConnection(topology, partial(DirectConnection.to, within=within, on_loss=on_loss), slot)
        case Server():
            connection = DirectConnection.to(at, within, on_loss)
        case _:
            raise TypeError(f"neither a topology nor an owner: {type(at).__name__}")
    try:
        yield connection
    finally:
        await connection.disconnect()
