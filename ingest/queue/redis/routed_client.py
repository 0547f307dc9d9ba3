"""A client of a cluster, for commands that do not block, see `routing`."""

from collections.abc import Callable, Sequence
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.client import Pipeline
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError

from ingest.queue.redis.closing_clients import ClosingClient, ClosingPool
from ingest.queue.redis.routing import Command, Routed
from ingest.queue.redis.topology.cluster import ClusterNode, ClusterTopology, SlotOwner, slot_of


class RoutedClient(ClosingClient, Routed):  # type: ignore[misc]  # as redis-py's own
    """A client of all nodes. `client_of` makes the client of a node. See `Routed.place` for `at`."""

    def __init__(self, at: ClusterTopology | SlotOwner, client_of: Callable[[ClusterNode], Redis]) -> None:
        # The pool is never used, because each node has its own.
        super().__init__(connection_pool=ClosingPool())
        self.place(at)
        self._client_of = client_of
        self._clients: dict[ClusterNode, Redis] = {}

    async def execute_command(self, *args: Any, **options: Any) -> Any:
        """Send a command to the node that owns its keys, and return the parsed reply."""
        return await self.route((args, options))

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

    async def send_one(self, node: ClusterNode, command: Command) -> Any:
        """See `Routed`."""
        return await self.at(node).execute_command(*command[0], **command[1])  # type: ignore[no-untyped-call]  # redis-py leaves it so

    async def send_together(self, node: ClusterNode, commands: Sequence[Command], *, transaction: bool) -> list[Any]:
        """See `Routed`."""
        async with self.at(node).pipeline(transaction=transaction) as pipe:
            for command, options in commands:
                pipe.execute_command(*command, **options)
            return await pipe.execute(raise_on_error=False)


class _RoutedPipeline(Pipeline):
    def __init__(self, client: RoutedClient, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._client = client

    async def execute(self, raise_on_error: bool = True) -> list[Any]:  # noqa: FBT001, FBT002  redis-py's own
        commands, self.command_stack = self.command_stack, []
        found = await self._client.route_all(commands, transaction=self.is_transaction)
        if raise_on_error and (failed := next((each for each in found if isinstance(each, Exception)), None)):
            raise failed
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
