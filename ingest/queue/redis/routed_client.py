"""A client of a cluster that sends each command to the node that owns its keys.

Only a command that was not executed is sent to another node. As with every client here, whatever else fails is repeated by the caller.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError, NoScriptError, RedisError, TimeoutError  # noqa: A004  redis-py's own, which are no OSErrors

from ingest.queue.redis.closing_clients import ClosingClient, ClosingPool
from ingest.queue.redis.routing import MOST_REDIRECTIONS, first_key
from ingest.queue.redis.topology.cluster import ClusterNode, ClusterTopology, slot_of
from ingest.queue.redis.topology.node_connections import Redirected

# A command with its options, as redis-py keeps it in a pipeline.
_Command = tuple[Sequence[Any], Mapping[str, Any]]


class RoutedClient(ClosingClient):
    """A client of all nodes, for commands that do not block.

    Attributes:
        topology: the cluster.

    Args:
        topology: the cluster.
        client_of: makes the client of a node.
        home: the slot whose owner gets commands without a key. Without it, it is one of the primaries, always the same one.
    """

    def __init__(
        self, topology: ClusterTopology, client_of: Callable[[ClusterNode], Redis], home: int | None = None
    ) -> None:
        # The pool is never used, because each node has its own.
        super().__init__(connection_pool=ClosingPool())
        self.topology = topology
        self._client_of = client_of
        self._home = home
        self._clients: dict[ClusterNode, Redis] = {}

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command to the node that owns its keys, and return the parsed reply."""
        for _ in range(MOST_REDIRECTIONS):
            node = await self._node_for(first_key(args))
            try:
                return await self.at(node).execute_command(*args, **options)  # type: ignore[no-untyped-call]  # redis-py leaves it so
            except Redirected as error:
                if error.is_asking:
                    return await self._ask(node.other(error.address), args, options)
            except (RedisError, OSError) as error:
                _suspect(node, error)
                raise
        raise ConnectionError("the keys move between the nodes of the cluster")

    def pipeline(self, transaction: bool = True, shard_hint: str | None = None) -> Pipeline:  # noqa: FBT001, FBT002  redis-py's own
        """Return a pipeline, which is divided by node. A transaction goes to the node of its first key."""
        return _RoutedPipeline(self, self.connection_pool, self.response_callbacks, transaction, shard_hint)

    def register_script(self, script: Any) -> AsyncScript:  # type: ignore[override]  # as redis-py's own
        """Return a script that a node is sent when it does not have it."""
        return _RoutedScript(self, script)

    async def aclose(self, close_connection_pool: bool | None = None) -> None:  # noqa: FBT001  redis-py's own
        """Close all connections."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose(close_connection_pool)

    def at(self, node: ClusterNode) -> Redis:
        """Return the client of a node, which closes with this one."""
        if (client := self._clients.get(node)) is None:
            client = self._clients[node] = self._client_of(node)
        return client

    async def client_for(self, key: str) -> Redis:
        """Return the client of the node that owns a key at the moment. It closes with this one."""
        return self.at(await self.topology.node_of(slot_of(key)))

    def clients(self) -> list[Redis]:
        """Return the clients of all nodes in use."""
        return list(self._clients.values())

    async def send(self, commands: Sequence[_Command], *, transaction: bool) -> list[Any]:
        """Send each command to the node of its keys, the commands of one node together, and return the replies or errors in order.

        A command without a key goes to the node of the first key.
        """
        keys = [first_key(command) for command, _ in commands]
        first = next((key for key in keys if key is not None), None)
        places = [first if transaction or key is None else key for key in keys]
        found: list[Any] = [None] * len(commands)
        by_node: dict[ClusterNode, list[int]] = {}
        for number, key in enumerate(places):
            try:
                by_node.setdefault(await self._node_for(key), []).append(number)
            except RedisError as error:
                found[number] = error

        async def send_to(node: ClusterNode, numbers: list[int]) -> None:
            replies = await self._together(node, [commands[number] for number in numbers], transaction=transaction)
            is_redirected = any(isinstance(reply, Redirected) for reply in replies)
            for number, reply in zip(numbers, replies, strict=True):
                # `WAIT` and the like are about the commands that were redirected.
                is_lost = is_redirected and (transaction or keys[number] is None)
                found[number] = ConnectionError("the keys are moving to another node") if is_lost else reply

        await asyncio.gather(*(send_to(node, numbers) for node, numbers in by_node.items()))
        for number, reply in enumerate(found):
            if isinstance(reply, Redirected):
                found[number] = await self._again(*commands[number])
        return found

    async def _together(self, node: ClusterNode, commands: Sequence[_Command], *, transaction: bool) -> list[Any]:
        try:
            async with self.at(node).pipeline(transaction=transaction) as pipe:
                for command, options in commands:
                    pipe.execute_command(*command, **options)
                return await pipe.execute(raise_on_error=False)
        except (RedisError, OSError) as error:
            _suspect(node, error)
            return [error] * len(commands)

    async def _again(self, command: Sequence[Any], options: Mapping[str, Any]) -> Any:
        try:
            return await self.execute_command(*command, **options)
        except (RedisError, OSError) as error:
            return error

    async def _ask(self, node: ClusterNode, command: Sequence[Any], options: Mapping[str, Any]) -> Any:
        """Send a command to the node to which a slot is migrated."""
        _, reply = await self._together(node, [(("ASKING",), {}), (command, options)], transaction=False)
        if isinstance(reply, Exception):
            raise reply
        return reply

    async def _node_for(self, key: str | bytes | None) -> ClusterNode:
        slot = self._home if key is None else slot_of(key)
        if slot is None:
            return (await self.topology.primaries())[0]
        return await self.topology.node_of(slot)


class _RoutedPipeline(Pipeline):
    def __init__(self, client: RoutedClient, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002  redis-py's own
        commands, self.command_stack = self.command_stack, []
        found = await self._client.send(commands, transaction=self.is_transaction)
        if raise_on_error:
            for reply in found:
                if isinstance(reply, Exception):
                    raise reply
        return found


class _RoutedScript(AsyncScript):
    async def __call__(self, keys: Any = None, args: Any = None, client: Any = None) -> Any:
        """Run the script. A node is sent its text only if it does not have it."""
        client = client or self.registered_client
        values = (*(keys or ()), *(args or ()))
        try:
            return await client.evalsha(self.sha, len(keys or ()), *values)
        except NoScriptError:
            return await client.eval(self.script, len(keys or ()), *values)


def _suspect(node: ClusterNode, error: Exception) -> None:
    """Look for the owner of the node's slots again, unless the error is the reply to a command."""
    if isinstance(error, ConnectionError | OSError | TimeoutError):
        node.suspect()
