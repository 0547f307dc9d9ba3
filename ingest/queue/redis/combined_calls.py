"""Combines calls of the same script that the sources of one process make at the same time into one command.

In a cluster, one command takes the calls for one slot, and the commands for one node are sent together. Each node has its own sender, so that
a node that is slow or does not respond delays the calls for its own slots only.

A part that fails raises its error in its own caller only. If the process dies here, each part has happened or not, as with single calls.
"""

import asyncio
from collections.abc import Iterable, Sequence
from functools import cache, partial
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import ResponseError

from ingest.domain.errors import QueueUnavailable
from ingest.queue.redis.checked_connections import SEVERAL_SLOTS, code_of
from ingest.queue.redis.connection import NoGroup, QueueRefused, translated
from ingest.queue.redis.script_call import RunsScripts, ScriptCall
from ingest.queue.redis.scripts import load
from ingest.queue.redis.topology import Owner, Topology

# Sources in one command, with few enough arguments: some managed servers accept at most 3,999.
_MOST_CALLS = 50
_MOST_VALUES = 2_000

_CLOSED = "the connection was closed"
Values = Sequence[Any]
# A script's name, whether the server has `XNACK`, and the server.
_Sender = tuple[str, bool, str]


class ClientRunner(RunsScripts):
    """Sends scripts by a client."""

    def __init__(self, client: Redis) -> None:
        self._client = client

    async def call(self, *parts: Any) -> Any:
        """Send a command and return its reply."""
        return await self._client.execute_command(*parts)  # type: ignore[no-untyped-call]  # redis-py leaves it so

    async def call_all(self, commands: Sequence[Values]) -> list[Any]:
        """Send commands together, and return their replies in order. An error reply is an exception among them."""
        async with self._client.pipeline(transaction=False) as pipe:
            for command in commands:
                pipe.execute_command(*command)
            found: list[Any] = await pipe.execute(raise_on_error=False)
            return found


class _Call(msgspec.Struct, frozen=True):
    keys: Values
    arguments: Values
    reply: "asyncio.Future[Any]"

    @property
    def values(self) -> int:
        return len(self.keys) + len(self.arguments) + 2

    def by_itself(self, script: AsyncScript) -> ScriptCall:
        """Return the call of a script for this caller only."""
        return ScriptCall(script, self.keys, self.arguments)


class CombinedCalls:
    """Calls of scripts. Of each script, one command is on its way to each server, and later calls form the next one.

    The client registers the scripts, and the runner sends them. Calls whose first keys have equal owners may share one command.
    """

    def __init__(self, client: Redis, runner: RunsScripts, topology: Topology) -> None:
        self._runner = runner
        self._topology = topology
        self._single = cache(partial(load, client))
        self._combined = cache(partial(load, client, within="combined"))
        self._waiting: dict[_Sender, list[_Call]] = {}
        self._sending: dict[_Sender, asyncio.Task[None]] = {}
        self._are_combined = True

    async def call(self, script: str, keys: Values, arguments: Values, *, has_xnack: bool = False) -> Any:
        """Run a script in the next command that runs it, and return its reply, or raise its error."""
        name = (script, has_xnack, self._topology.last_server_of(keys[0]))
        call = _Call(keys, arguments, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(name, []).append(call)
        if name not in self._sending:
            # Begins after the other calls of this iteration of the event loop.
            self._sending[name] = asyncio.create_task(self._send_all(name))
        return await call.reply

    async def close(self) -> None:
        """End the calls whose replies are outstanding."""
        await end(self._sending.values())

    async def _send_all(self, name: _Sender) -> None:
        script, has_xnack, _ = name
        single = self._single(script, has_xnack=has_xnack)
        combined = self._combined(script, has_xnack=has_xnack)
        try:
            while calls := self._waiting.pop(name, []):
                await self._send(single, combined, calls)
        finally:
            del self._sending[name]
            for call in self._waiting.pop(name, []):
                settle(call.reply, QueueUnavailable(_CLOSED))

    async def _send(self, single: AsyncScript, combined: AsyncScript, calls: list[_Call]) -> None:
        try:
            while calls := [call for call in calls if not call.reply.done()]:
                await self._send_groups(single, combined, self._by_owner(_first_of(calls)))
        except (QueueUnavailable, NoGroup) as error:
            for call in calls:
                settle(call.reply, error)
        finally:
            for call in calls:
                settle(call.reply, QueueUnavailable(_CLOSED))

    def _by_owner(self, calls: list[_Call]) -> list[list[_Call]]:
        if not self._are_combined:
            return [[call] for call in calls]
        groups: dict[Owner, list[_Call]] = {}
        for call in calls:
            groups.setdefault(self._topology.owner_of(call.keys[0]), []).append(call)
        return list(groups.values())

    async def _send_groups(self, single: AsyncScript, combined: AsyncScript, groups: list[list[_Call]]) -> None:
        """Send one command for each owner, all together. They have the same server, unless slots have moved since."""
        commands = [
            _combined_call(combined, calls) if len(calls) > 1 else calls[0].by_itself(single) for calls in groups
        ]
        with translated():
            replies = await self._runner.run_all(commands)
        for calls, reply in zip(groups, replies, strict=True):
            for call, part in zip(calls, await self._parts(single, calls, reply), strict=False):
                settle(call.reply, part)

    async def _parts(self, single: AsyncScript, calls: list[_Call], reply: Any) -> list[Any]:
        """The results or errors of the calls of one owner, or of the first of them that have run."""
        if len(calls) == 1 and (isinstance(reply, ResponseError) or not isinstance(reply, Exception)):
            return [reply]
        try:
            with translated():
                if isinstance(reply, Exception):
                    raise reply
                # Each result is a list of one reply.
                return [part if isinstance(part, ResponseError) else part[0] for part in reply[: len(calls)]]
        except QueueRefused as error:
            if not isinstance(error.__cause__, ResponseError):
                return [error] * len(calls)
            # A cluster takes no command for several slots. It stays one while this process runs.
            self._are_combined &= code_of(error.__cause__) != SEVERAL_SLOTS
        except (QueueUnavailable, NoGroup) as error:
            return [error] * len(calls)
        # A refusal may concern the keys of a single source.
        with translated():
            return await self._runner.run_all([call.by_itself(single) for call in calls])


def _combined_call(script: AsyncScript, calls: list[_Call]) -> ScriptCall:
    sizes = [size for call in calls for size in (len(call.keys), len(call.arguments))]
    keys = [key for call in calls for key in call.keys]
    arguments = [argument for call in calls for argument in call.arguments]
    return ScriptCall(script, keys, [len(calls), *sizes, *arguments])


def _first_of(calls: list[_Call]) -> list[_Call]:
    """As many calls as fit into one command, at least one."""
    values = 0
    for count, call in enumerate(calls[:_MOST_CALLS]):
        values += call.values
        if count and values > _MOST_VALUES:
            return calls[:count]
    return calls[:_MOST_CALLS]


def settle(future: "asyncio.Future[Any]", result: Any) -> None:
    """Return a result to a caller, or raise it if it is an error, unless the caller has given up."""
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


async def end(tasks: Iterable["asyncio.Task[Any]"]) -> None:
    """Cancel tasks, and wait for their end."""
    tasks = list(tasks)
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
