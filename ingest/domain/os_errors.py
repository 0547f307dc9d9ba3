"""What the operating system says of a connection that cannot be made, without the forms of asyncio and redis-py."""

import errno
import os
import re

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS})
_NO_REASON = "Connect call failed"
# Of this, event loops have neither a number nor a text.
_NO_HANDSHAKE = "the server closed the connection during the TLS handshake"
# asyncio's text names the address as a tuple, and not the reason: `[Errno 111] Connect call failed ('127.0.0.1', 5432)`.
_ASYNCIO = re.compile(r"\[Errno (\d+)\] Connect call failed \('([^']*)', (\d+)[^)]*\)")
# What is left of others, such as uvloop's, which names no address: `[Errno 111] Connection refused`.
_NUMBER = re.compile(r"^\[Errno -?\d+\] ")
# redis-py's names the host as the URL does: `Error 111 connecting to redis:6379. Connection refused.`
_REDIS = re.compile(r"^Error (-?\d+) connecting to (\S+)\. (.*)\.$", re.DOTALL)
# And of a connection that is reset: `Error while reading from redis:6379 : (104, 'Connection reset by peer')`.
_REDIS_READ = re.compile(r"^Error while reading from (\S+) ?: \((?:\d+, )?'([^']*)',?\)$")


def plain(text: str) -> str:
    """The text of an error, with `cannot connect to HOST:PORT: Connection refused` in place of those forms."""
    if match := _REDIS_READ.match(text):
        return f"the connection to {match[1]} failed: {match[2]}"
    if match := _REDIS.match(text):
        number, address, reason = match.groups()
        return f"cannot connect to {address}: {os.strerror(int(number)) if reason.startswith(_NO_REASON) else reason}"
    text = text.removeprefix("Multiple exceptions: ") if _ASYNCIO.search(text) else text
    return _NUMBER.sub("", _ASYNCIO.sub(_address_and_reason, text))


def is_exhaustion(error: BaseException | None) -> bool:
    """Whether this process or its host has no file descriptors or no memory left: no server is the cause."""
    return isinstance(error, OSError) and error.errno in _EXHAUSTED


def reason_of(error: OSError) -> str:
    """The reason alone."""
    if error.errno and (error.strerror or "").startswith(_NO_REASON):
        return os.strerror(error.errno)
    if isinstance(error, ConnectionResetError) and not error.errno:
        return _NO_HANDSHAKE
    return error.strerror or type(error).__name__


def _address_and_reason(match: re.Match[str]) -> str:
    number, host, port = match.groups()
    return f"cannot connect to {f'[{host}]' if ':' in host else host}:{port}: {os.strerror(int(number))}"
