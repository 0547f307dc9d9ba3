"""One connection to Redis for one command at a time, for what is sent most often.

redis-py's client and pool cost as much again as its connection, for what is not needed here: taking a connection, checking
it, retrying, post-processing the reply.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Self

from hiredis import pack_command
from redis.asyncio import ConnectionPool
from redis.asyncio.connection import AbstractConnection
from redis.commands.core import AsyncScript
from redis.exceptions import ConnectionError, NoScriptError  # noqa: A004  redis-py's own, which is no OSError

from ingest.queue.connection import COMMAND_TIMEOUT
from ingest.queue.transport import connection_options


class DirectConnection:
    """Sends commands over one connection, made when it is needed; raises redis-py's exceptions, see `translated`.

    Whatever ends a command early, its cancelling too, closes the connection: no reply is taken for another's.

    Args:
        connection: redis-py's.
        within: seconds within which a command is answered.
        on_loss: called when the connection was lost, or did not answer.
    """

    def __init__(
        self, connection: AbstractConnection, within: float, on_loss: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        self._connection = connection
        self._within = within
        self._on_loss = on_loss
        self._turn = asyncio.Lock()

    @classmethod
    @asynccontextmanager
    async def open(
        cls, url: str, within: float, on_loss: Callable[[], Awaitable[None]] | None = None
    ) -> AsyncIterator[Self]:
        """A connection whose commands are answered `within` seconds; `on_loss` is called when it is lost."""
        # No timeout of the connection's own, which would make a task of each sending.
        pool = ConnectionPool(**connection_options(url, socket_timeout=None, socket_connect_timeout=COMMAND_TIMEOUT))
        connection = cls(pool.make_connection(), within, on_loss)  # type: ignore[no-untyped-call]
        try:
            yield connection
        finally:
            await connection.disconnect()

    async def call(self, *parts: str | bytes | memoryview | int) -> Any:
        """Send a command and return its reply, as Redis gives it."""
        connection = self._connection
        try:
            async with self._turn, asyncio.timeout(self._within):
                await connection.send_packed_command(pack_command(parts), check_health=False)  # type: ignore[arg-type]
                return await connection.read_response()
        except (ConnectionError, OSError):
            if self._on_loss is not None:
                await self._on_loss()
            raise

    async def close_if_idle(self) -> None:
        """Close the connection unless a command uses it; the next command opens it again."""
        if not self._turn.locked():
            await self.disconnect()

    async def disconnect(self) -> None:
        """Close the connection; the next command opens it again."""
        await self._connection.disconnect(nowait=True)

    async def run(self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[str | bytes | int]) -> Any:
        """Run a script; Redis is sent its text only if it does not know it."""
        try:
            return await self.call("EVALSHA", script.sha, len(keys), *keys, *arguments)
        except NoScriptError:
            return await self.call("EVAL", script.script, len(keys), *keys, *arguments)
