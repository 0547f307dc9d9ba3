"""Runs `ingest` commands in processes forked from one that has imported them already.

A command's imports take several times as long as what most tests want to see of it. Each command is still a process
of its own, with its own arguments, environment, folder and standard streams, and it runs `python -m ingest` to the end of
the interpreter.

The pytest process holds one end of a socket; when it ends, the server reads end of file and ends, too.
"""

import json
import os
import runpy
import signal
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

_NOT_HERE = frozenset({"demo", "bench", "upstream", "worker"})  # they start processes of their own

Request = tuple[list[str], dict[str, str], str]


class CommandServer:
    """The side of pytest: one server process, started with the environment that its commands share."""

    @staticmethod
    def is_for(command: str) -> bool:
        """Whether it runs this command."""
        return command not in _NOT_HERE

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        ours, theirs = socket.socketpair()
        self._socket = ours
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            os.set_inheritable(theirs.fileno(), True)
            self._pid = os.posix_spawn(sys.executable, command, self.environment)

    def run(self, arguments: Sequence[str], environment: Mapping[str, str], streams: Sequence[int]) -> "Running":
        """Start a command; `environment` is the whole of it, `streams` the three standard ones."""
        request = json.dumps([arguments, dict(environment), str(Path.cwd())]).encode()
        channel, theirs = socket.socketpair()
        with theirs:
            descriptors = [theirs.fileno(), *streams]
            socket.send_fds(self._socket, [len(request).to_bytes(4)], descriptors)
            self._socket.sendall(request)
        return Running(channel)

    def close(self) -> None:
        """End the server; its commands have ended."""
        self._socket.close()
        os.waitpid(self._pid, 0)


class Running:
    """One command."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel

    def wait(self, timeout: float) -> int:
        """The exit code, negative for a signal. A command that takes longer than `timeout` is killed."""
        with self._channel:
            self._channel.settimeout(timeout)
            pid = int.from_bytes(_exactly(self._channel, 4))
            try:
                return os.waitstatus_to_exitcode(int.from_bytes(_exactly(self._channel, 4)))
            except BaseException:  # also Ctrl-C: no command outlives its test
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
                raise


def _exactly(channel: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = channel.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data


def _serve(requests: socket.socket) -> Request | None:
    """Fork a process for each request. Returns the request in that process, and nothing here when pytest has ended."""
    while True:
        header, descriptors, *_ = socket.recv_fds(requests, 4, 4)
        if not header:
            return None
        arguments, environment, folder = json.loads(_exactly(requests, int.from_bytes(header)))
        if os.fork() == 0:
            # This process only waits for the command, so that the server is free for the next one.
            command = os.fork()
            if command:
                _report(socket.socket(fileno=descriptors[0]), command)
            for number, descriptor in enumerate(descriptors[1:]):
                os.dup2(descriptor, number)
            for descriptor in descriptors:
                os.close(descriptor)
            requests.close()
            return arguments, environment, folder
        for descriptor in descriptors:
            os.close(descriptor)
        _reap()


def _report(channel: socket.socket, command: int) -> None:
    channel.sendall(command.to_bytes(4))
    _, status = os.waitpid(command, 0)
    with suppress(BrokenPipeError):  # the test has given up
        channel.sendall(status.to_bytes(4))
    os._exit(0)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def main() -> None:
    """Serve until pytest ends; in a forked process, run the command."""
    from ingest.cli import COMMANDS  # noqa: PLC0415  only the server imports it

    for name in COMMANDS:
        if name not in _NOT_HERE:
            import_module(f"ingest.cli.{name}")
    import_module("ingest.app")
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    arguments, environment, folder = request
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = ["ingest", *arguments]
    sys.path[0] = ""
    runpy.run_module("ingest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
