"""Runs `ingest` commands and the tests' own programs in forks of a process that has imported their modules.

For most tests, a program's imports would take several times as long as the rest. Each program is still a separate
process with its own arguments, environment, folder and standard streams, and runs `python -m ingest` or `python FILE`.
It ends like any Python process, except that memory is left to the kernel.

The pytest process holds one end of a socket. When it ends, the server reads end of file and ends as well.
"""

import atexit
import gc
import json
import os
import runpy
import signal
import socket
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

_PACKAGES = ("ingest.cli", "ingest.operations", "ingest.api")
_OTHERS = ("ingest.services.worker", "typer.rich_utils", "rich.live", "rich.table")
_NOT_IMPORTED = frozenset({"demo", "bench", "upstream"})  # tested in new processes, as users start them

Request = tuple[list[str], dict[str, str], str, bool]


class CommandServer:
    """The side of pytest: one server process, started with the environment that its commands share."""

    @staticmethod
    def is_for(program: Sequence[str]) -> bool:
        """Whether the server runs this program, which is a command of `ingest` or a file with its arguments."""
        return program[0] not in _NOT_IMPORTED or "--help" in program

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = dict(environment)
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._sending = threading.Lock()
        with theirs:
            command = [sys.executable, __file__, str(theirs.fileno())]
            os.set_inheritable(theirs.fileno(), True)
            self._pid = os.posix_spawn(sys.executable, command, self.environment)

    def run(
        self,
        program: Sequence[str],
        environment: Mapping[str, str],
        streams: Sequence[int],
        *,
        new_session: bool = False,
    ) -> "Running":
        """Start a program with exactly this `environment` and these three standard `streams`."""
        request = json.dumps([list(program), dict(environment), str(Path.cwd()), new_session]).encode()
        channel, theirs = socket.socketpair()
        with theirs:
            descriptors = [theirs.fileno(), *streams]
            # Tests run several commands concurrently, from threads.
            with self._sending:
                socket.send_fds(self._socket, [len(request).to_bytes(4)], descriptors)
                self._socket.sendall(request)
        return Running(channel)

    def close(self) -> None:
        """End the server after its programs have ended."""
        self._socket.close()
        os.waitpid(self._pid, 0)


class Running:
    """One process."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self.pid = int.from_bytes(_exactly(channel, 4))
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, which is negative for a signal, or None while the program runs."""
        with suppress(TimeoutError):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait until it has ended, and return the exit code.

        Raises:
            TimeoutError: it did not end in time.
        """
        if self.returncode is None:
            self._channel.settimeout(timeout)
            try:
                status = _exactly(self._channel, 4)
            except BlockingIOError as error:
                raise TimeoutError from error
            self.returncode = os.waitstatus_to_exitcode(int.from_bytes(status))
            self._channel.close()
        return self.returncode

    def run_to_the_end(self, timeout: float) -> int:
        """As `wait`, but a program that takes longer is killed."""
        try:
            return self.wait(timeout)
        except BaseException:  # including Ctrl-C, because no command may outlive its test
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
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
        program, environment, folder, new_session = json.loads(_exactly(requests, int.from_bytes(header)))
        if os.fork() == 0:
            # This process only waits for the program, so that the server is free for the next one.
            started = os.fork()
            if started:
                _report(requests, descriptors, started)
            for number, descriptor in enumerate(descriptors[1:]):
                os.dup2(descriptor, number)
            for descriptor in descriptors:
                os.close(descriptor)
            requests.close()
            return program, environment, folder, new_session
        for descriptor in descriptors:
            os.close(descriptor)
        _reap()


def _report(requests: socket.socket, descriptors: Sequence[int], program: int) -> None:
    channel = socket.socket(fileno=descriptors[0])
    # Or pytest would not see the end of the program's output, nor the server the end of pytest.
    requests.close()
    for descriptor in descriptors[1:]:
        os.close(descriptor)
    channel.sendall(program.to_bytes(4))
    _, status = os.waitpid(program, 0)
    with suppress(BrokenPipeError):  # the test has given up
        channel.sendall(status.to_bytes(4))
    os._exit(0)


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _import_all() -> None:
    for name in _PACKAGES:
        _import_package(name)
    for name in _OTHERS:
        import_module(name)
    # Otherwise, each process would spend most of its end on collecting imported modules.
    gc.collect()
    gc.freeze()


def _import_package(name: str) -> None:
    package = import_module(name)
    for module in iter_modules(package.__path__, f"{name}."):
        if module.name.rpartition(".")[2] in _NOT_IMPORTED:
            continue
        if module.ispkg:
            _import_package(module.name)
        else:
            import_module(module.name)


def main() -> None:
    """Serve until pytest ends. In a forked process, run the program."""
    _import_all()
    request = _serve(socket.socket(fileno=int(sys.argv[1])))
    if request is None:
        return
    program, environment, folder, new_session = request
    if new_session:
        os.setsid()
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    code = _exit_code(program)
    _end_at_once(code)
    sys.exit(code)


def _exit_code(program: Sequence[str]) -> str | int | None:
    """Run the program. Its frames, with all objects that only they hold, are freed afterwards."""
    try:
        if program[0].endswith(".py"):
            sys.argv[:] = program
            sys.path[0] = str(Path(program[0]).parent)
            runpy.run_path(program[0], run_name="__main__")
        else:
            sys.argv[:] = ["ingest", *program]
            sys.path[0] = ""
            runpy.run_module("ingest", run_name="__main__", alter_sys=True)
    except SystemExit as left:
        return left.code
    return None


def _end_at_once(code: str | int | None) -> None:
    """End without tearing down all modules, which would take more than half of a short command's time.

    Python ends programs that may still print or fail, because of a message as the exit code, threads or pending output.
    """
    if isinstance(code, str) or threading.active_count() > 1:
        return
    atexit._run_exitfuncs()
    gc.collect()
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            return
    os._exit(code or 0)


if __name__ == "__main__":
    main()
