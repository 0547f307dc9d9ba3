"""Combines calls of the same script that the sources of one process make at the same time into one command.

A part that fails raises its error in its own caller only. If the process dies here, each part has happened or not, as with single calls.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cache, partial
from typing import Any

import msgspec
from redis.asyncio import Redis
from redis.commands.core import AsyncScript
from redis.exceptions import ResponseError

from ingest.domain.errors import QueueUnavailable
from ingest.queue.redis.checked_connections import SEVERAL_SLOTS, code_of
from ingest.queue.redis.connection import NoGroup, QueueRefused, translated
from ingest.queue.redis.scripts import load, load_combined

# Sources in one command, with few enough arguments: some managed servers accept at most 3,999.
_MOST_CALLS = 50
_MOST_VALUES = 2_000

_CLOSED = "the connection was closed"
Values = Sequence[Any]
# A script's name, and whether the server has `XNACK`.
_Script = tuple[str, bool]
Run = Callable[[AsyncScript, Values, Values], Awaitable[Any]]


class _Call(msgspec.Struct, frozen=True):
    keys: Values
    arguments: Values
    reply: "asyncio.Future[Any]"

    @property
    def values(self) -> int:
        return len(self.keys) + len(self.arguments) + 2

    def settle(self, reply: Any) -> None:
        """Return the reply to the caller, or raise it if it is an error, unless the caller has given up."""
        if self.reply.done():
            return
        if isinstance(reply, Exception):
            self.reply.set_exception(reply)
        else:
            self.reply.set_result(reply)


class CombinedCalls:
    """Calls of scripts over one connection. Of each script, one command is on its way, and later calls form the next one.

    Args:
        client: registers the scripts.
        run: sends a script with its keys and arguments, and returns the reply.
    """

    def __init__(self, client: Redis, run: Run) -> None:
        self._run = run
        self._single = cache(partial(load, client))
        self._combined = cache(partial(load_combined, client))
        self._waiting: dict[_Script, list[_Call]] = {}
        self._sending: dict[_Script, asyncio.Task[None]] = {}
        self._are_combined = True

    async def call(self, script: str, keys: Values, arguments: Values, *, has_xnack: bool = False) -> Any:
        """Run a script in the next command that runs it, and return its reply, or raise its error."""
        name = (script, has_xnack)
        call = _Call(keys, arguments, asyncio.get_running_loop().create_future())
        self._waiting.setdefault(name, []).append(call)
        if name not in self._sending:
            # Begins after the other calls of this iteration of the event loop.
            self._sending[name] = asyncio.create_task(self._send_all(name))
        return await call.reply

    async def close(self) -> None:
        """End the calls whose replies are outstanding."""
        for sending in self._sending.values():
            sending.cancel()
        if self._sending:
            await asyncio.wait(self._sending.values())

    async def _send_all(self, name: _Script) -> None:
        script, has_xnack = name
        single = self._single(script, has_xnack=has_xnack)
        combined = self._combined(script, has_xnack=has_xnack)
        try:
            while calls := self._waiting.pop(name, []):
                await self._send(single, combined, calls)
        finally:
            del self._sending[name]
            for call in self._waiting.pop(name, []):
                call.settle(QueueUnavailable(_CLOSED))

    async def _send(self, single: AsyncScript, combined: AsyncScript, calls: list[_Call]) -> None:
        try:
            while calls := [call for call in calls if not call.reply.done()]:
                page = _first_of(calls)
                replies = await self._together(combined, page) if self._are_combined and len(page) > 1 else []
                # A refusal may concern the keys of a single source.
                replies = replies or [await self._alone(single, call) for call in page]
                for call, reply in zip(page, replies, strict=False):
                    call.settle(reply)
        except (QueueUnavailable, NoGroup) as error:
            for call in calls:
                call.settle(error)
        finally:
            for call in calls:
                call.settle(QueueUnavailable(_CLOSED))

    async def _alone(self, script: AsyncScript, call: _Call) -> Any:
        with translated():
            try:
                return await self._run(script, call.keys, call.arguments)
            except ResponseError as error:
                return error

    async def _together(self, script: AsyncScript, calls: list[_Call]) -> list[Any]:
        """The results or errors of the parts that have run, at least one. None if Redis refuses the command."""
        sizes = [size for call in calls for size in (len(call.keys), len(call.arguments))]
        keys = [key for call in calls for key in call.keys]
        arguments = [argument for call in calls for argument in call.arguments]
        try:
            with translated():
                parts = await self._run(script, keys, [len(calls), *sizes, *arguments])
                return [part if isinstance(part, ResponseError) else _only(part) for part in parts[: len(calls)]]
        except QueueRefused as error:
            if not isinstance(error.__cause__, ResponseError):
                raise
            # A cluster takes no command for several slots. It stays one while this process runs.
            self._are_combined = code_of(error.__cause__) != SEVERAL_SLOTS
            return []


def _first_of(calls: list[_Call]) -> list[_Call]:
    """As many calls as fit into one command, at least one."""
    values = 0
    for count, call in enumerate(calls[:_MOST_CALLS]):
        values += call.values
        if count and values > _MOST_VALUES:
            return calls[:count]
    return calls[:_MOST_CALLS]


def _only(part: list[Any]) -> Any:
    (reply,) = part
    return reply
