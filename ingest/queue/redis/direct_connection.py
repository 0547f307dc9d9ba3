"""One connection to Redis for one command after the other, for the commands that are sent most often.

redis-py's client and pool would double the cost of a command. They take a connection, check it, retry, and post-process the
reply, which is not needed here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.exceptions import ConnectionError, ResponseError  # noqa: A004  redis-py's own, which is no OSError

from ingest.queue.redis.connection import COMMAND_TIMEOUT
from ingest.queue.redis.script_call import RunsScripts
from ingest.queue.redis.topology import Server

if TYPE_CHECKING:
    from ingest.queue.redis.checked_connections import CheckedConnection

_Part = str | bytes | memoryview | int


class DirectConnection(RunsScripts):
    """Sends commands over one connection, made when it is needed. It raises redis-py's exceptions, see `translated`.

    Whatever ends a command early, including its cancellation, closes the connection, so that no reply is taken for
    another's. `on_loss` is called if a command is not answered `within` this time, in seconds, or if the connection was
    lost.
    """

    def __init__(self, server: Server, within: float, on_loss: Callable[[], Awaitable[None]] | None = None) -> None:
        # No timeout of the connection's own, which would make a task of each sending.
        options = server.connection_options(socket_timeout=None, socket_connect_timeout=COMMAND_TIMEOUT)
        self._connection = cast("CheckedConnection", ConnectionPool(**options).make_connection())  # type: ignore[no-untyped-call]
        self._within = within
        self._on_loss = on_loss
        self._turn = asyncio.Lock()

    async def call(self, *parts: _Part) -> Any:
        """Send a command and return its reply, as Redis gives it."""
        return await self._exchange(pack_command(parts), self._connection.read_response)  # type: ignore[arg-type]

    async def call_all(self, commands: Sequence[Sequence[_Part]]) -> list[Any]:
        """Send commands in one write, and return their replies. An error reply is an exception among them."""
        packed = b"".join(pack_command(tuple(command)) for command in commands)  # type: ignore[arg-type]
        found: list[Any] = await self._exchange(packed, partial(self._replies, len(commands)))
        return found

    async def _exchange(self, packed: bytes, read: Callable[[], Awaitable[Any]]) -> Any:
        try:
            async with self._turn, asyncio.timeout(self._within):
                await self._connection.close_if_unusable()
                await self._connection.send_packed_command(packed, check_health=False)
                return await read()
        except (ConnectionError, OSError) as error:
            if self._on_loss is not None:
                await self._on_loss()
            if isinstance(error, TimeoutError):
                raise TimeoutError(f"no reply within {self._within:g} s") from error
            raise

    async def _replies(self, count: int) -> list[Any]:
        found: list[Any] = []
        for _ in range(count):
            try:
                found.append(await self._connection.read_response())
            except ResponseError as error:
                found.append(error)
        return found

    async def close_if_idle(self) -> None:
        """Close the connection unless a command uses it. The next command opens it again."""
        if self._connection.is_connected and not self._turn.locked():
            await self.disconnect()

    async def disconnect(self) -> None:
        """Close the connection. The next command opens it again."""
        await self._connection.disconnect(nowait=True)
