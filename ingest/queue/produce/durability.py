"""Makes sure that the writes of a script are on a disk, or at replicas, before they are confirmed.

The commands that wait for that follow the script immediately, on its connection, to the node of a cluster that owns the queue. They wait
for the writes of this connection, and for all earlier writes of the server. A script that finds its batch in the stream writes nothing, so a key is written after it each time,
because the batch may have been added through another connection a moment ago.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import AbstractConnection
from redis.commands.core import AsyncScript
from redis.exceptions import NoScriptError

from ingest.domain.errors import QueueUnavailable
from ingest.queue.redis.connection import client_for, replies
from ingest.queue.redis.scripts import RECORD_SECONDS

Command = Sequence[str | int]

# Shorter than the time in which a connection has to answer.
_WITHIN_MS = 4000
_ALWAYS_SYNCED = {"appendonly": "yes", "appendfsync": "always", "no-appendfsync-on-rewrite": "no"}


@dataclass(frozen=True, slots=True)
class Proof:
    """How a server proves that the writes are as durable as required.

    Attributes:
        commands: The commands after a script.
        shortfall: Reads their replies, and returns the missing proof, or an empty text.
    """

    commands: Sequence[Command]
    shortfall: Callable[[Sequence[Any]], str]

    def check(self, replies: Sequence[Any]) -> None:
        """Raise `QueueUnavailable` if the replies do not prove it."""
        if missing := self.shortfall(replies):
            raise QueueUnavailable(f"{missing}; it may have been accepted")


def synced(key: str) -> Proof:
    """Redis' append-only file is on its disk (`WAITAOF` if it is reliable, see `proofs`). The key is written each time."""

    def shortfall(replies: Sequence[Any]) -> str:
        _, (local, _) = replies
        return "" if local else f"not on Redis' disk within {_WITHIN_MS / 1000:g} s"

    return Proof((_write(key), ("WAITAOF", 1, 0, _WITHIN_MS)), shortfall)


def replicated(key: str, replicas: int) -> Proof:
    """As many replicas have it in their memory (`WAIT`). The key is written each time."""

    def shortfall(replies: Sequence[Any]) -> str:
        _, reached = replies
        return "" if reached >= replicas else f"at {reached} of {replicas} replicas within {_WITHIN_MS / 1000:g} s"

    return Proof((_write(key), ("WAIT", replicas, _WITHIN_MS)), shortfall)


def always_synced() -> Proof:
    """Redis writes everything to its disk before it replies (`appendfsync always`), and confirms the setting each time."""

    def shortfall(replies: Sequence[Any]) -> str:
        difference = sync_difference(replies)
        return difference and f"{difference}: not on Redis' disk for certain"

    return Proof((("CONFIG", "GET", *_ALWAYS_SYNCED),), shortfall)


def sync_difference(replies: Sequence[Any]) -> str:
    """How the server's configuration differs from the one of `always_synced`, or an empty text."""
    [reply] = replies
    pairs = reply.items() if isinstance(reply, dict) else zip(reply[::2], reply[1::2], strict=True)
    found = {_text(name): _text(value) for name, value in pairs}
    others = (name for name, value in _ALWAYS_SYNCED.items() if found.get(name) != value)
    return ", ".join(f"{name} is {found.get(name, 'unknown')}" for name in others)


def _write(key: str) -> Command:
    return "SET", key, "", "EX", RECORD_SECONDS


def _text(value: bytes | str) -> str:
    return value.decode() if isinstance(value, bytes) else value


class ProvenRun:
    """Runs scripts so that they are confirmed only when there is proof, which `proof` finds when it is first needed."""

    def __init__(self, client: Redis, proof: Callable[[], Awaitable[Proof]]) -> None:
        self._client = client
        self._proof = proof
        self._writes = True

    async def __call__(
        self, script: AsyncScript, keys: Sequence[str], arguments: Sequence[Any], on_reply: Callable[[], None]
    ) -> Any:
        """Run a script, and return its reply when its writes are proven. A negative reply means that it has written nothing.

        `on_reply` is called when the script has written, before the proof.
        """
        proof = await self._proof()
        pool = (await client_for(self._client, keys[0])).connection_pool
        connection = await pool.get_connection()  # type: ignore[no-untyped-call]  # redis-py leaves it so
        try:
            reply, is_asked = await self._ask(connection, script, [len(keys), *keys, *arguments], proof)
            self._writes = has_written = reply[0] >= 0
            if not has_written:
                if is_asked:
                    await connection.disconnect(nowait=True)
                return reply
            on_reply()
            if not is_asked:
                await _send(connection, proof.commands)
            replies = [await connection.read_response() for _ in proof.commands]
        except BaseException:
            # It may have replies left.
            await connection.disconnect(nowait=True)
            raise
        finally:
            await pool.release(connection)
        proof.check(replies)
        return reply

    async def _ask(
        self, connection: AbstractConnection, script: AsyncScript, rest: list[Any], proof: Proof
    ) -> tuple[Any, bool]:
        """The script's reply, and whether the proof was sent with it. It is not if there is no room for the orders."""
        asked = proof.commands if self._writes else ()
        await _send(connection, [("EVALSHA", script.sha, *rest), *asked])
        try:
            return await connection.read_response(), bool(asked)
        except NoScriptError:
            # A proof of nothing may take seconds. Sending opens the connection again.
            if asked:
                await connection.disconnect(nowait=True)
        await _send(connection, [("EVAL", script.script, *rest), *proof.commands])
        return await connection.read_response(), True


async def _send(connection: AbstractConnection, commands: Sequence[Sequence[Any]]) -> None:
    await connection.send_packed_command(connection.pack_commands(commands))


async def ask(client: Redis, commands: Sequence[Command]) -> list[Any]:
    """The replies to commands that are sent together over one connection. It raises the first error."""
    async with client.pipeline(transaction=False) as pipe:
        for command in commands:
            pipe.execute_command(*command)
        return await replies(pipe)
