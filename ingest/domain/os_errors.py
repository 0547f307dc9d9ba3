"""Rewrites the connection errors of asyncio and redis-py as plain texts of the operating system."""

import errno
import os
import re

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_NO_REASON = "Connect call failed"
# Event loops report neither a number nor a text for this.
_NO_HANDSHAKE = "the server closed the connection during the TLS handshake"
# asyncio shows the address as a tuple, without the reason: `[Errno 111] Connect call failed ('127.0.0.1', 5432)`.
_ASYNCIO = re.compile(r"\[Errno (\d+)\] Connect call failed \('([^']*)', (\d+)[^)]*\)")
# Others, such as uvloop, do not show the address: `[Errno 111] Connection refused`.
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
# redis-py shows the host as in the URL: `Error 111 connecting to redis:6379. Connection refused.`
_REDIS = re.compile(r"^Error (-?\d+) connecting to (\S+)\. (.*)\.$", re.DOTALL)
# redis-py for a reset connection: `Error while reading from redis:6379 : (104, 'Connection reset by peer')`.
_REDIS_READ = re.compile(r"^Error while reading from (\S+) ?: \((?:\d+, )?'([^']*)',?\)$")


def plain(text: str) -> str:
    """Return the text of an error, in the form `cannot connect to HOST:PORT: Connection refused`."""
    if match := _REDIS_READ.match(text):
        return f"the connection to {match[1]} failed: {match[2]}"
    if match := _REDIS.match(text):
        number, address, reason = match.groups()
        return f"cannot connect to {address}: {os.strerror(int(number)) if reason.startswith(_NO_REASON) else reason}"
    text = text.removeprefix("Multiple exceptions: ") if _ASYNCIO.search(text) else text
    return _NUMBER.sub("", _ASYNCIO.sub(_address_and_reason, text))


def is_exhaustion(error: BaseException | None) -> bool:
    """Return whether this process or its host is out of file descriptors or memory, so that no server is the cause."""
    return isinstance(error, OSError) and error.errno in _EXHAUSTED


def reason_of(error: OSError) -> str:
    """Return the reason without the address."""
    if error.errno and (error.strerror or "").startswith(_NO_REASON):
        return os.strerror(error.errno)
    if isinstance(error, ConnectionResetError) and not error.errno:
        return _NO_HANDSHAKE
    return error.strerror or type(error).__name__


def _address_and_reason(match: re.Match[str]) -> str:
    number, host, port = match.groups()
    return f"cannot connect to {f'[{host}]' if ':' in host else host}:{port}: {os.strerror(int(number))}"
