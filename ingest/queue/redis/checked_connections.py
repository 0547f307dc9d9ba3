"""Connections that check who is at their other end.

A name, a virtual IP or a proxy may lead new connections to another server than before, while open connections stay where
they are. So a connection is closed as soon as its server replies that it is not the right one. The next command looks the name up
again and connects. Before a new connection is used, its server has to show that it is a Redis.
"""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any

from hiredis import pack_command
from redis import DriverInfo
from redis import exceptions as redis_errors
from redis.asyncio.connection import Connection, RedisSSLContext, SSLConnection, UnixDomainSocketConnection, parse_url
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

# Replies of a cluster node without our keys, or that has handed them over, including a replica.
ELSEWHERE = {"MOVED", "ASK"}
# Replies of a server that is a replica now, or about to be, which would not change on the same connection. It may also be a
# server that was cut off from its replicas or its disk, and was replaced.
_ASK_ANOTHER = {"READONLY", "UNBLOCKED", "MASTERDOWN", "LOADING", "CLUSTERDOWN", "NOREPLICAS", "MISCONF"}
# Exceptions of a handshake in redis-py if the other end is not Redis.
_NONSENSE = (TypeError, ValueError, AttributeError, LookupError)

# Options of a URL that are not the user's to choose: reads block for longer than a usual timeout, replies are read as bytes, nothing is
# repeated below the caller, and each client sets its number of connections. Other programs may share the URL, and need them.
_OURS = {"socket_timeout", "max_connections", "timeout", "decode_responses", "encoding", "encoding_errors", "legacy_responses", "retry", "retry_on_error"}  # fmt: skip
# Replies of Redis to the first command without a password, to which its other advice does not apply.
NO_PASSWORD = ("HELLO must be called", "Authentication required")
# The reply to a command whose keys belong to several slots of a cluster.
SEVERAL_SLOTS = "CROSSSLOT"

# By task: the connection whose reply it read last.
_last_answered: ContextVar["CheckedConnection | None"] = ContextVar("_last_answered", default=None)


class NoQueueThere(redis_errors.RedisError):
    """What answers can hold no queue."""


def code_of(error: redis_errors.ResponseError) -> str:
    """The first word of an error reply. redis-py cuts some of them from the text."""
    return getattr(error, "status_code", None) or str(error).partition(" ")[0]


def is_of_wrong_server(error: redis_errors.ResponseError) -> bool:
    """Whether a server replies that it cannot serve its keys now, because it is no primary, or is starting, or is cut off."""
    return code_of(error) in _ASK_ANOTHER


def close_last_answered() -> None:
    """Let the connection from which this task has read the last reply, which made no sense, be closed before its next command."""
    if (connection := _last_answered.get()) is not None:
        connection.mark_for_reconnect()  # type: ignore[no-untyped-call]  # redis-py leaves it so


if TYPE_CHECKING:
    _Base = Connection
else:
    _Base = object


class CheckedConnection(_Base):
    """The base before each of redis-py's classes of connections."""

    # Whether the server has answered anything since the handshake.
    _has_served = False

    @property
    def is_connected(self) -> bool:
        """Whether a command can be sent. Otherwise, sending it connects first.

        A transport that is closing stays until the event loop's next turn, and data that is written to it is lost. Besides,
        asyncio's own event loop, in Python 3.12 and in releases of 3.13, then waits for a socket that is about to be closed. The
        next connection gets its number, and would wait in vain (https://github.com/python/cpython/issues/136234).
        """
        return self._reader is not None and self._writer is not None and not self._writer.transport.is_closing()

    async def close_if_unusable(self) -> None:
        """Close the connection if the server has closed it, which many do after some idle time, or its last reply made no sense."""
        is_spoilt: bool = self.should_reconnect()  # type: ignore[no-untyped-call]  # redis-py leaves it so
        if self.is_connected and (is_spoilt or await self.can_read()):
            await self.disconnect(nowait=True)

    async def disconnect(self, *arguments: Any, **options: Any) -> None:
        """Close the connection, even if it is closing already. With `nowait`, unsent data is dropped."""
        writer = self._writer
        await super().disconnect(*arguments, **options)
        if self._writer is writer:
            self._reader = self._writer = None
        if options.get("nowait") and writer is not None:
            writer.transport.abort()

    def pack_command(self, *parts: Any) -> list[bytes]:
        """The bytes of a command, made in C. redis-py's own code takes several times as long for a script with many keys."""
        return [pack_command((*parts[0].split(), *parts[1:]))]

    async def read_response(self, *arguments: Any, **options: Any) -> Any:
        """The next reply. A reply of a server that is not the right one closes the connection."""
        _last_answered.set(self)
        try:
            reply = await super().read_response(*arguments, **options)
        except redis_errors.ResponseError as error:
            if (other := await self.rejected(error)) is not error:
                raise other from error
            raise
        self._has_served = True
        return reply

    async def rejected(self, error: redis_errors.ResponseError) -> redis_errors.RedisError:
        """Close the connection if a reply shows that the server is not the right one, and return the error to raise."""
        is_elsewhere = code_of(error) in ELSEWHERE
        if is_elsewhere or is_of_wrong_server(error):
            await self.disconnect(nowait=True)
        if is_elsewhere and self._has_served:
            return redis_errors.ConnectionError("another server of the cluster has our keys now")
        return error

    async def on_connect_check_health(self, check_health: bool = True) -> None:  # noqa: FBT001, FBT002  redis-py's own
        """Make sure that the server is a Redis that can hold a queue."""
        try:
            await super().on_connect_check_health(check_health)
            about = await self._about()
        except _NONSENSE as error:
            raise NoQueueThere("the server is not Redis") from error
        finally:
            self._has_served = False
        if about is None:
            return
        if not isinstance(about, list | dict) or b"server" not in about:
            raise NoQueueThere("the server is not Redis")
        self.check_server(about if isinstance(about, dict) else dict(zip(about[::2], about[1::2], strict=False)))

    def check_server(self, about: Mapping[bytes, Any]) -> None:
        """Raise an error if a server that describes itself like this cannot be used by this connection."""
        if about.get(b"mode") == b"sentinel":
            raise NoQueueThere("the server is a Sentinel; write redis+sentinel://host:26379/SERVICE/0")

    async def _about(self) -> Any:
        """The server's reply about itself, or None if the user may not read it and the reply is Redis' own."""
        await self.send_command("HELLO", check_health=False)
        try:
            return await self.read_response()
        except redis_errors.ResponseError as error:
            if code_of(error) in {"ERR", "NOPERM"}:
                return None
            raise


class CheckedTcp(CheckedConnection, Connection):
    """A connection without TLS."""


class CheckedTls(CheckedTcp, SSLConnection):
    """A connection with TLS."""

    async def connect_check_health(self, *arguments: Any, **options: Any) -> None:
        """Connect if necessary, by the present content of the files of certificates."""
        # redis-py keeps the first content, so that a file that was rotated, or was invalid for a moment, would never be read again.
        given = self.ssl_context
        if not self.is_connected and (given.context is None or given.ca_certs or given.ca_path or given.certfile):
            given.context = _tls_context(given)
        await super().connect_check_health(*arguments, **options)


def _tls_context(given: RedisSSLContext) -> ssl.SSLContext:
    """As redis-py makes it, but the authorities that are given take the place of the system's, instead of joining them."""
    with _file_named("ssl_ca_certs"):
        context = ssl.create_default_context(cafile=given.ca_certs, capath=given.ca_path, cadata=given.ca_data)
    context.check_hostname = given.check_hostname
    context.verify_mode = given.cert_reqs
    for flag in given.include_verify_flags or ():
        context.verify_flags |= flag
    for flag in given.exclude_verify_flags or ():
        context.verify_flags &= ~flag
    if given.certfile or given.keyfile:
        with _file_named("ssl_certfile or ssl_keyfile"):
            # Without a password, OpenSSL would prompt for it on the terminal.
            context.load_cert_chain(given.certfile or "", given.keyfile, given.password or (lambda: b""))
    if given.min_version is not None:
        context.minimum_version = given.min_version
    if given.ciphers is not None:
        context.set_ciphers(given.ciphers)
    return context


@contextmanager
def _file_named(options: str) -> Iterator[None]:
    """Say of which option a file is that cannot be used: the error itself names none."""
    try:
        yield
    except OSError as error:
        reason = error.reason if isinstance(error, ssl.SSLError) else error.strerror
        raise redis_errors.ConnectionError(f"the file in {options} cannot be used: {reason}") from error


class _CheckedUnix(CheckedConnection, UnixDomainSocketConnection):
    pass


_CHECKED: Mapping[type, type[CheckedConnection]] = {
    Connection: CheckedTcp,
    SSLConnection: CheckedTls,
    UnixDomainSocketConnection: _CheckedUnix,
}


def connection_options(url: str, role: type[CheckedConnection] = CheckedConnection, **defaults: Any) -> dict[str, Any]:
    """The options of a pool for connections to `url`, which repeat no command themselves. Options in `_OURS` are ignored.

    Connections check that the server has a `role`, see `role_connections`.
    """
    options: dict[str, Any] = {
        "retry": Retry(NoBackoff(), 0),
        "driver_info": _driver_info(),
        **defaults,
        **{name: value for name, value in parse_url(url).items() if name not in _OURS},
    }
    checked = _CHECKED[options.get("connection_class", Connection)]
    options["connection_class"] = _with_role(role, checked)  # type: ignore[arg-type]  # a class can be hashed
    return options


@cache
def _with_role(role: type[Any], checked: type[Any]) -> type[Any]:
    return checked if role is CheckedConnection else type(role.__name__, (role, checked), {})


@cache
def _driver_info() -> DriverInfo:
    """The name of each connection. redis-py would parse the metadata of its package for each, more than a millisecond."""
    return DriverInfo()
