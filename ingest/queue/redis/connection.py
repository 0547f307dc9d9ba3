"""Clients of Redis, with its errors translated into ours.

By default redis-py retries every command, including those that must not be repeated blindly. Here only the caller retries,
because it decides which commands may be repeated. See `checked_connections` for the checks of a connection.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import wraps
from time import monotonic
from typing import Any, ParamSpec, TypeVar, cast

from redis import exceptions as redis_errors
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.client import Pipeline
from redis.asyncio.connection import AbstractConnection

from ingest.domain.errors import AccessDenied, QueueUnavailable, UserError
from ingest.domain.os_errors import plain
from ingest.queue.redis.checked_connections import (
    ELSEWHERE,
    NO_PASSWORD,
    CheckedConnection,
    NoQueueThere,
    close_last_answered,
    code_of,
)
from ingest.queue.redis.closing_clients import ClosingClient, ClosingPool
from ingest.queue.redis.routed_client import RoutedClient
from ingest.queue.redis.topology import Owner, Server, Topology, topology_of
from ingest.queue.redis.topology.cluster import ClusterTopology, SlotOwner
from ingest.queue.redis.topology.role_connections import Redirected

_P = ParamSpec("_P")
_T = TypeVar("_T")

COMMAND_TIMEOUT, _UNUSED = 5.0, 10.0
CONTROL_CONNECTIONS = 4

# Error replies of a server that is starting, failing over, out of memory or busy, or has forgotten a script as soon as it was sent it:
# waiting helps.
_PASSING = {"LOADING", "READONLY", "UNBLOCKED", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "BUSY", "OOM", "MISCONF", "NOREPLICAS", "NOSCRIPT"}  # fmt: skip
# In the error of a script whose user may not run one of its commands, by release.
_DENIALS = ("has no permissions to run", "can't run this command")


class QueueFull(QueueUnavailable):
    """Redis is at its memory limit. Reads and acks still work."""


class QueueRefused(UserError, QueueUnavailable):
    """Redis rejects a command: wrong credentials, an ACL, a key of another type."""


class QueueDenied(AccessDenied, QueueRefused):
    """Our user lacks the right to a command or to a key."""


class NoGroup(Exception):
    """The stream or its group is gone: flushed, or lost in a failover."""


class _ControlPool(ClosingPool, BlockingConnectionPool):
    """When a connection is lost, the idle ones are closed as well. A network has often lost all, and each would cost a timeout."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._released_at: dict[AbstractConnection, float] = {}

    async def ensure_connection(self, connection: AbstractConnection) -> None:
        # redis-py sends by a connection that the server has closed while it was idle, unless its maintenance notifications are off.
        if isinstance(connection, CheckedConnection):
            await connection.close_if_unusable()
        await super().ensure_connection(connection)

    async def release(self, connection: AbstractConnection) -> None:
        # The last used connection is taken first, so that the connections that only a start has needed become old.
        self._released_at[connection] = now = monotonic()
        await self.close_idle(now - _UNUSED if connection.is_connected else math.inf)
        await super().release(connection)

    async def close_idle(self, since: float = math.inf) -> None:
        for connection in list(self._get_free_connections()):
            if self._released_at.get(connection, math.inf) <= since:
                self._released_at.pop(connection, None)
                await connection.disconnect(nowait=True)


def control_client(at: str | Owner | Server | Topology, connections: int = CONTROL_CONNECTIONS) -> Redis:
    """A client for commands that do not block, used by many tasks.

    In a cluster, each command goes to the node that owns its keys.

    Args:
        at: a URL, a topology, an owner, or one of the servers. A command without a key, such as `INFO`, goes to this owner.
        connections: the most connections, in a cluster to each node.
    """
    at = topology_of(at) if isinstance(at, str) else at

    def client_of(server: Server) -> Redis:
        options = server.connection_options(socket_timeout=COMMAND_TIMEOUT, socket_connect_timeout=COMMAND_TIMEOUT)
        return ClosingClient.from_pool(_ControlPool(max_connections=connections, timeout=COMMAND_TIMEOUT, **options))

    return RoutedClient(at, client_of) if isinstance(at, ClusterTopology | SlotOwner) else client_of(cast("Server", at))


async def close_idle(client: Redis) -> None:
    """Close the unused connections of a control client. The next commands open them again."""
    for each in client.clients() if isinstance(client, RoutedClient) else [client]:
        await cast("_ControlPool", each.connection_pool).close_idle()


async def client_for(client: Redis, key: str) -> Redis:
    """Return the client of the server that owns a key at the moment, for commands that have to go over one connection.

    It closes with the given client. In a cluster, the server rejects keys that it no longer owns, and the error translates to
    `QueueUnavailable`. The caller then gets the client again.
    """
    return await client.client_for(key) if isinstance(client, RoutedClient) else client


def server_name(client: Redis, key: str) -> str:
    """Return the address of the cluster node that owned a key when it was last looked up. Empty outside of clusters."""
    return client.topology.last_server_of(key) if isinstance(client, RoutedClient) else ""


async def replies(commands: Pipeline) -> list[Any]:
    """Send them, and raise the first error reply unchanged. redis-py would quote the command, and change the error's text."""
    found: list[Any] = await commands.execute(raise_on_error=False)
    if failed := next((reply for reply in found if isinstance(reply, Exception)), None):
        raise failed
    return found


@contextmanager
def translated() -> Iterator[None]:
    """Turn redis-py's exceptions into `QueueUnavailable`, `QueueFull`, `QueueRefused` or `NoGroup`.

    So are exceptions that a reply of the wrong shape raises in its reader. The server is not the Redis that it should be, or
    has sent another command's reply. Its connection is closed.

    It also makes sure that a cancellation gets through, because redis-py sends by `asyncio.wait_for`, which on Python 3.11 swallows
    a cancellation that arrives just as the sending completes (fixed in 3.12, https://github.com/python/cpython/issues/86296).
    """
    task = asyncio.current_task()
    # A cancellation that was requested and not delivered comes at the next await, where it has to get through.
    cancelled_before = task.cancelling() - getattr(task, "_must_cancel", False) if task is not None else 0
    try:
        yield
    except BaseException as error:
        if (translation := _translation_of(error)) is not None:
            raise translation from error
        raise
    finally:
        if task is not None and task.cancelling() > cancelled_before:
            raise asyncio.CancelledError


def _translation_of(error: BaseException) -> Exception | None:
    """The exception to raise instead, or None for the error itself."""
    match error:
        case redis_errors.AuthenticationError() if str(error).startswith(NO_PASSWORD):
            return QueueRefused("Redis requires a password, and none is given")
        case redis_errors.AuthenticationError() | redis_errors.NoPermissionError():
            kind = QueueDenied if isinstance(error, redis_errors.NoPermissionError) else QueueRefused
            return kind(f"Redis denies access: {_with_advice(str(error)) if is_about_keys(error) else error}")
        case NoQueueThere():
            return QueueRefused(str(error))
        case redis_errors.InvalidResponse():
            return QueueRefused("the server is not Redis")
        case redis_errors.ConnectionError() | redis_errors.TimeoutError() | OSError():
            nameless = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
            return QueueUnavailable(plain(str(error)) or nameless)
        case redis_errors.ResponseError():
            return _translate_reply(error)
        case RuntimeError() if "handler is closed" in str(error):
            # What uvloop raises, instead of an OSError, for a connection that was closed a moment ago.
            return QueueUnavailable("the connection was closed")
        case TypeError() | ValueError() | AttributeError() | LookupError():
            # Exceptions of a reply with another shape than the command's, where it is read.
            close_last_answered()
            return QueueRefused(f"Redis has sent a reply that does not fit the command ({type(error).__name__})")
        case _:
            return None


def translating(method: Callable[_P, Awaitable[_T]]) -> Callable[_P, Coroutine[Any, Any, _T]]:
    """The method under `translated` as a whole, because a reply of the wrong shape fails wherever it is parsed."""

    @wraps(method)
    async def translated_method(*arguments: _P.args, **options: _P.kwargs) -> _T:
        with translated():
            return await method(*arguments, **options)

    return translated_method


def is_out_of_memory(error: redis_errors.ResponseError) -> bool:
    """Whether Redis rejects a write because it is at its memory limit."""
    return isinstance(error, redis_errors.OutOfMemoryError) or "OOM command" in str(error)


def is_about_keys(error: redis_errors.RedisError) -> bool:
    """Whether a user lacks the right to a key, rather than to a command."""
    return isinstance(error, redis_errors.NoPermissionError) and "permissions to run" not in str(error)


def _with_advice(text: str) -> str:
    """An error about a key, which Redis does not name."""
    return f"{text.rstrip('.')}; `ingest doctor` names the key"


def _translate_reply(error: redis_errors.ResponseError) -> Exception:
    text = str(error)
    # A script's error carries the inner one: "NOGROUP ... script: ...", or "... OOM command not allowed ...".
    if "NOGROUP" in text or "no such key" in text:
        return NoGroup(text)
    if is_out_of_memory(error):
        return QueueFull(text)
    if "exhausted the last possible ID" in text:
        return QueueRefused(
            "the queue has used up its entry IDs, and accepts no orders; run `ingest partitions repair`"
        )
    code = code_of(error)
    if code in _PASSING or isinstance(error, Redirected):
        return QueueUnavailable(text)
    if code in ELSEWHERE:
        return QueueRefused(
            "Redis Cluster: the keys of this queue are on another node; write redis+cluster://host:6379"
        )
    if any(denial in text for denial in _DENIALS):
        return QueueDenied(f"Redis denies access: {text}")
    return QueueRefused(f"Redis rejects a command: {_with_advice(text) if code == 'WRONGTYPE' else text}")
