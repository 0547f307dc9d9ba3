"""The program of a transform process, which calls a user's function for a single order per request of its worker.

It ends with its worker, when the socket closes. During a call, it ends when the kernel reports the worker's death (Linux).
It ignores SIGTERM, SIGINT and SIGHUP, because the worker ends this process itself.
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
from ingest.mapping.transforms.messages import HEADER, Reply, Start, framed, unpickled

if TYPE_CHECKING:
    import asyncio

_PR_SET_PDEATHSIG = 1


class _Calls:
    """Calls the function, and keeps one event loop for an async function."""

    def __init__(self, function: Function) -> None:
        self._function = function
        self._runner: asyncio.Runner | None = None

    def reply_to(self, task: bytes) -> Reply:
        """Return the result of one call."""
        try:
            order, body = unpickled(task)
            value = self._function(order, body)
            if inspect.isawaitable(value):
                value = self._awaited(value)
            return Reply(returned_orders(order, value))
        except TransformFailed as error:
            return Reply(error=str(error))
        except BaseException as error:  # noqa: BLE001  even sys.exit() in the function must not end the process
            # An exhausted process cannot handle the next order.
            return Reply(error=described(error, self._function), ends=is_exhausted(error))

    def _awaited(self, value: Any) -> Any:
        import asyncio  # noqa: PLC0415  most functions are not async

        async def wait() -> Any:
            return await value

        self._runner = self._runner or asyncio.Runner()
        return self._runner.run(wait())


def main() -> None:
    """Serve the worker at the other end of standard input until it closes the socket."""
    _end_with(int(sys.argv[1]))
    # An empty handler instead of SIG_IGN, which programs that the function starts would inherit.
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
        connection.sendall(framed(Reply(error=str(error), ends=True)))
        return
    connection.sendall(framed(Reply()))
    own = os.getpid()
    while (task := _received(connection)) is not None:
        reply = calls.reply_to(task)
        if os.getpid() != own:
            # The function has forked and returned in both processes. A second reply would be read as the next order's reply.
            os._exit(0)
        connection.sendall(framed(reply))
        if reply.ends:
            return


def _received(connection: socket.socket) -> bytes | None:
    """Return the next frame, or None if the worker has closed the socket."""
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
        os._exit(1)  # it died earlier


def _limit(memory: int) -> None:
    """Limit the memory of the function, and make the kernel kill this process first when memory is short."""
    if sys.platform == "linux":
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
        if memory:
            _, most = resource.getrlimit(resource.RLIMIT_DATA)
            memory = memory if most == resource.RLIM_INFINITY else min(memory, most)
            resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    # Crashes are expected here, and a core dump would be as large as the process.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _detach_from_standard_streams() -> None:
    """Redirect the function's output to the worker's standard error, and its input to an empty file."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    # Line by line, because buffered output is lost when this process is killed.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # Python's own stdout supports it


if __name__ == "__main__":
    with suppress(ConnectionError):
        main()
    # Exit without waiting for threads that the function may have left.
    sys.stderr.flush()
    os._exit(0)
