"""One connection to Redis for one command after the other, for the commands that are sent most often.

redis-py's client and pool cost as much again as its connection, for what is not needed here: taking a connection, checking
it, retrying, post-processing the reply.
"""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError, NoScriptError  # noqa: A004  redis-py's own, which is no OSError

from ingest.queue.redis.checked_connections import CheckedConnection, connection_options
from ingest.queue.redis.connection import COMMAND_TIMEOUT


class DirectConnection:
    """Sends commands over one connection, made when it is needed. It raises redis-py's exceptions, see `translated`.

    Whatever ends a command early, its cancelling too, closes the connection: no reply is taken for another's.

    Args:
        connection: redis-py's, as `transport` makes them.
        within: seconds within which a command is answered.
        on_loss: called when the connection was lost, or did not answer.
    """

    def __init__(
        self, connection: CheckedConnection, within: float, on_loss: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._connection = connection
        self._within = within
        self._on_loss = on_loss
        self._turn = asyncio.Lock()
        # Of the command that is on its way over an open connection: when its reply is due. One timer watches over all of them: one
        # for each command costs a third of sending it.
        self._due = math.inf
        self._is_overdue = False
        self._watching: asyncio.TimerHandle | None = None

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, within: float, on_loss: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncIterator[Self]:
        """A connection with replies within `within` seconds. `on_loss` is called when it is lost."""
        # No timeout of the connection's own, which would make a task of each sending.
        pool = ConnectionPool(**connection_options(url, socket_timeout=None, socket_connect_timeout=COMMAND_TIMEOUT))
        connection = cls(pool.make_connection(), within, on_loss)  # type: ignore[no-untyped-call]
        try:
            yield connection
        finally:
            await connection.disconnect()

    async def call(self, *parts: str | bytes | memoryview | int) -> Any:
        """Send a command and return its reply, as Redis gives it."""
        command = pack_command(parts)  # type: ignore[arg-type]
        try:
            async with self._turn:
                if self._connection.is_at_end:
                    await self.disconnect()
                if self._connection.is_connected:
                    return await self._exchange_watched(command)
                async with asyncio.timeout(self._within):
                    return await self._exchange(command)
        except (ConnectionError, OSError):
            if self._on_loss is not None:
                await self._on_loss()
            raise

    async def _exchange(self, command: bytes) -> Any:
        await self._connection.send_packed_command(command, check_health=False)
        return await self._connection.read_response()

    async def _exchange_watched(self, command: bytes) -> Any:
        """The same over an open connection, which is closed if the reply does not come in time."""
        loop = asyncio.get_running_loop()
        self._is_overdue = False
        self._due = loop.time() + self._within
        if self._watching is None:
            self._watching = loop.call_at(self._due, self._watch)
        try:
            return await self._exchange(command)
        except (ConnectionError, OSError) as error:
            if self._is_overdue:
                raise TimeoutError(f"no reply within {self._within:g} s") from error
            raise
        finally:
            self._due = math.inf
            if self._is_overdue:  # also where the reply came in the same turn
                await self.disconnect()

    def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        self._watching = None
        if self._due <= loop.time():
            self._is_overdue = True
            self._connection.hang_up()
        elif self._due < math.inf:
            self._watching = loop.call_at(self._due, self._watch)

    async def close_if_idle(self) -> None:
        """Close the connection unless a command uses it. The next command opens it again."""
        if not self._turn.locked():
            await self.disconnect()

    async def disconnect(self) -> None:
        """Close the connection. The next command opens it again."""
        if self._watching is not None and self._due == math.inf:
            self._watching.cancel()
            self._watching = None
        await self._connection.disconnect(nowait=True)

    async def run(self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """Run a script. Redis is sent its text only if it does not have it."""
        try:
            return await self.call("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.call("EVAL", script.script, len(keys), *keys, *arguments)
