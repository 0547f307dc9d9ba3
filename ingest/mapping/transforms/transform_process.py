"""The program of a transform process: calls a user's function for one order at a time, as its worker asks.

It ends with its worker: when the socket closes, or, in the middle of a call, when the kernel reports the worker's death (Linux).
SIGTERM, SIGINT and SIGHUP are for the worker, which ends this process itself.
"""

import ctypes
import inspect
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ingest.domain.errors import ConfigError, TransformFailed
from ingest.mapping.transforms.functions import Function, described, is_exhausted, load_function, returned_orders
from ingest.mapping.transforms.messages import HEADER, Reply, Start, reply_frame, unpickled

if TYPE_CHECKING:
    import asyncio

_PR_SET_PDEATHSIG = 1


class _Calls:
    """Calls the function; an async one in an event loop that stays."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._runner: asyncio.Runner | None = None

    def reply_to(self, task: bytes) -> Reply:
        """The result of one call."""
        try:
            order, body = unpickled(task)
            value = self._function(order, body)
            if inspect.isawaitable(value):
                value = self._awaited(value)
            return Reply(returned_orders(order, value))
        except TransformFailed as error:
            return Reply(error=str(error))
        except BaseException as error:  # noqa: BLE001  sys.exit() in it must not end the process either
            # A process that has used up what it may have is of no use to the next order.
            return Reply(error=described(error, self._function), ends=is_exhausted(error))

    def _awaited(self, value: Any) -> Any:
        import asyncio  # noqa: PLC0415  most functions need none

        async def wait() -> Any:
            return await value

        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(wait())


def main() -> None:
    """Serve the worker at the other end of standard input, until it closes it."""
    _end_with(int(sys.argv[1]))
    # A handler that does nothing, rather than ignoring: programs that the function starts do not inherit it.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    with socket.socket(fileno=os.dup(0)) as connection:
        _detach_from_standard_streams()
        start = _received(connection)
        if start is not None:
            _serve(connection, unpickled(start))


def _serve(connection: socket.socket, start: Start) -> None:
    sys.path[:] = start.path
    _limit(start.memory)
    try:
        calls = _Calls(load_function(start.function))
    except ConfigError as error:
        connection.sendall(reply_frame(Reply(error=str(error), ends=True)))
        return
    connection.sendall(reply_frame(Reply()))
    own = os.getpid()
    while (task := _received(connection)) is not None:
        reply = calls.reply_to(task)
        if os.getpid() != own:
            # The function has forked, and returned in both: a second reply would be taken for the next order's.
            os._exit(0)
        connection.sendall(reply_frame(reply))
        if reply.ends:
            return


def _received(connection: socket.socket) -> bytes | None:
    """The next frame; None if the worker has closed the socket."""
    header = _exactly(connection, HEADER.size)
    return _exactly(connection, HEADER.unpack(header)[0]) if header is not None else None


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    received = bytearray()
    while len(received) < size:
        part = connection.recv(min(1 << 20, size - len(received)))
        if not part:
            return None
        received += part
    return bytes(received)


def _end_with(worker: int) -> None:
    """Let the kernel kill this process when its worker dies."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != worker:
        os._exit(1)  # it has died before


def _limit(memory: int) -> None:
    """Bound what the function may allocate; short of memory, the kernel is to end this process before any other."""
    if sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        if memory:
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            memory = memory if most == resource.RLIM_INFINITY else min(memory, most)
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    # A crash is expected here, and its core would be as large as the process.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _detach_from_standard_streams() -> None:
    """What the function prints goes to the worker's standard error; it reads nothing."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # Line by line: what is still in a buffer when this process is ended would be lost.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # Python's own stdout has it


if __name__ == "__main__":
    with suppress(ConnectionError):
        main()
    # Without waiting for threads that the function may have left.
    sys.stderr.flush()
    os._exit(0)
