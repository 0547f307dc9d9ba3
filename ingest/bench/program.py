"""A Python module of a bench as a process of its own: under a watchdog's eye, spoken to by lines.

It reads what it is told from standard input, where end of file says that the bench is gone, and answers on standard output;
its standard error goes to a log. It gets nothing of the caller's environment but what it is given.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from time import monotonic
from typing import IO, TYPE_CHECKING

from ingest.bench.errors import BenchFailed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from ingest.lab.servers.watchdog import Watchdog

_PATIENCE = 120.0  # seconds for what takes one, on a machine that is busy with something else
_KILL_SECONDS = 30.0
_TAIL_LINES = 15
# It becomes the program after the watchdog knows its pid; what follows the first line is the program's to read.
_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@"', "gate")


class Program:
    """`python -m MODULE`, running, as the leader of a process group.

    Attributes:
        pid: of the process.
        name: the module's, for people.

    Args:
        module: what is run.
        arguments: of its command line; no secrets, everybody can read them.
        environment: the variables it gets beside PATH and LC_ALL.
        home: its working directory, and where its log is.
        watchdog: ends it, should this process vanish.
    """

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str], home: Path, watchdog: Watchdog
    ) -> None:
        self.name = module
        self.log = home / f"{module.rpartition('.')[2]}.log"
        self._watchdog = watchdog
        self._unread = b""
        with self.log.open("ab") as errors:
            self._process = subprocess.Popen(
                [*_GATE, sys.executable, "-m", module, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=home,
                env={"LC_ALL": "C", "PATH": os.defpath, **environment},
                start_new_session=True,
            )
        self.pid = self._process.pid
        self._is_gone = False
        try:
            watchdog.watch(self.pid, signal.SIGKILL)
            self.tell("go")
        except BaseException:
            self.kill()
            raise

    def tell(self, line: str) -> None:
        """Write it a line.

        Raises:
            BenchFailed: it has ended.
        """
        try:
            self._stdin.write(f"{line}\n".encode())
            self._stdin.flush()
        except BrokenPipeError as error:
            raise self.failed("ended by itself") from error

    def read_line(self, within: float = _PATIENCE) -> str:
        """Wait for the next line that it writes.

        Raises:
            BenchFailed: it has ended, or the time is over.
        """
        deadline = monotonic() + within
        while b"\n" not in self._unread:
            if not self.has_written(max(0.0, deadline - monotonic())):
                raise self.failed("does not answer")
            chunk = os.read(self._stdout_number, 65536)
            if not chunk:
                raise self.failed("ended by itself")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def has_written(self, within: float = 0.0) -> bool:
        """Wait up to `within` seconds for something to read, of which end of file is one."""
        poll = select.poll()
        poll.register(self._stdout_number, select.POLLIN | select.POLLHUP)
        return bool(poll.poll(within * 1000))

    def has_ended(self, within: float = 0.0) -> bool:
        """Wait up to `within` seconds for it to be gone."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(within)
        return self._process.returncode is not None

    @property
    def exit_code(self) -> int | None:
        """How it ended, as subprocess says it; None while it runs."""
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, unless it has ended."""
        self._process.send_signal(number)

    def stop(self, patience: float) -> int | None:
        """Ask it to stop, and return its exit code; None if it would not and was killed."""
        self.signal(signal.SIGTERM)
        code = self.exit_code if self.has_ended(within=patience) else None
        self.kill()
        return code

    def kill(self) -> None:
        """End it with all its children, at once."""
        if self._is_gone:
            return  # its number may be another's by now
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait(_KILL_SECONDS)
        self._is_gone = True
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._watchdog.forget(self.pid)

    def failed(self, what: str) -> BenchFailed:
        """The error that says so; shows the end of its log, and keeps the log where it outlives the bench."""
        lines = self.log.read_text(errors="replace").splitlines()
        tail = "\n".join(f"    {line}" for line in lines[-_TAIL_LINES:])
        sys.stderr.write(f"\nthe end of the log of {self.name}:\n{tail}\n")
        with tempfile.NamedTemporaryFile(prefix="ingest-bench-", suffix=".log", delete=False) as kept:
            shutil.copyfile(self.log, kept.name)
        return BenchFailed(f"{self.name} {what}; its log is kept in {kept.name}")

    @property
    def _stdin(self) -> IO[bytes]:
        if self._process.stdin is None:
            raise AssertionError("it was started with a pipe")
        return self._process.stdin

    @property
    def _stdout_number(self) -> int:
        if self._process.stdout is None:
            raise AssertionError("it was started with a pipe")
        return self._process.stdout.fileno()
