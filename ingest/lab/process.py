"""Starts one process so that it is certain to end: a server, a command of the service, or a program of a bench.

Two pipes close the gaps that pids leave:

- The *gate*: a shell waits for a line on its standard input before it becomes the process. The line is sent
  after the watchdog knows the pid. If the caller dies in between, the shell reads end of file and exits, so
  no process ever runs unwatched.
- The *lifeline*: the process and all its children inherit the write end and never use it. End of file at the
  read end says that the last of them has ended, so a restart does not meet what a killed one left.
"""

import os
import select
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from types import MappingProxyType
from typing import IO

from ingest.lab.errors import ServerError
from ingest.lab.unix_user import UnixUser
from ingest.lab.watchdog import Watchdog

_KILL_SECONDS = 30.0

# Nothing of the caller's environment: no PGPORT or PGDATA, no secret.
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Streams(Enum):
    """Where a process reads and writes; the value is what the gate's shell runs."""

    LOGGED = 'read -r go && exec "$@" </dev/null'
    """It reads nothing; standard output and standard error go to its log."""
    PIPED = 'read -r go && exec "$@"'
    """Standard input and output are pipes to the caller; standard error goes to its log."""


class ChildProcess:
    """A running process with its children, the leader of a process group.

    Attributes:
        pid: of the process itself.

    Args:
        command: the program and its arguments. Visible to all users of the machine: no secrets.
        directory: its working directory.
        log: the file that its output is appended to.
        watchdog: ends it, should the caller end.
        ending: the signal that the watchdog uses.
        environment: variables that it gets besides PATH and LC_ALL.
        streams: whether it can be talked to.
        user: another user to run it as, or None.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        directory: Path,
        log: Path,
        watchdog: Watchdog,
        ending: signal.Signals = signal.SIGKILL,
        environment: Mapping[str, str] = _NOTHING,
        streams: Streams = Streams.LOGGED,
        user: UnixUser | None = None,
    ) -> None:
        self._watchdog = watchdog
        self._lifeline, held = os.pipe()
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    ["/bin/sh", "-c", streams.value, "gate", *command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE if streams is Streams.PIPED else output,
                    stderr=output,
                    cwd=directory,
                    env={**_ENVIRONMENT, **environment},
                    pass_fds=(held,),
                    start_new_session=True,  # Ctrl-C in the terminal must not end it before its clients
                    user=user.uid if user else None,
                    group=user.gid if user else None,
                    extra_groups=() if user else None,
                )
        except OSError as error:
            os.close(self._lifeline)
            raise ServerError(f"{command[0]} cannot be started: {error}") from error
        finally:
            os.close(held)
        self.pid = self._process.pid
        try:
            watchdog.watch(self.pid, ending)
            self._open_gate(streams)
        except BrokenPipeError as error:
            self.kill()
            raise ServerError("the watchdog was killed; nothing is started without one") from error
        except BaseException:
            self.kill()
            raise

    def _open_gate(self, streams: Streams) -> None:
        self.stdin.write(b"go\n")
        self.stdin.flush()
        if streams is Streams.LOGGED:
            self.stdin.close()

    @property
    def stdin(self) -> IO[bytes]:
        """Its standard input, if its streams are pipes."""
        if self._process.stdin is None:
            raise AssertionError("it was started with a pipe")
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """Its standard output, if its streams are pipes."""
        if self._process.stdout is None:
            raise AssertionError("it was started with a pipe")
        return self._process.stdout

    def has_ended(self, within: float = 0.0) -> bool:
        """Wait up to `within` seconds for the process and all its children to end."""
        if self._lifeline < 0:
            return True
        poll = select.poll()
        poll.register(self._lifeline, select.POLLIN | select.POLLHUP)
        if not poll.poll(within * 1000):
            return False
        self._process.wait()
        self._forget()
        return True

    @property
    def exit_code(self) -> int | None:
        """How it ended, as subprocess says it; None while it runs."""
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, unless it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL, and wait until its children have ended.

        Raises:
            ServerError: some of them still run.
        """
        if self.has_ended():
            return
        if self._process.poll() is None:  # not reaped yet: the pid is still its own
            os.killpg(self.pid, signal.SIGKILL)
        # Not before: one that reads would end by itself at the end of file.
        with suppress(BrokenPipeError):
            self.stdin.close()
        if not self.has_ended(within=_KILL_SECONDS):
            raise ServerError(f"process {self.pid} was killed, but its children still run")

    def release(self) -> None:
        """Leave it running: it is neither waited for nor ended here."""
        if self._lifeline >= 0:
            self._process.returncode = 0  # or Popen warns of a child that is still running
            self._forget()

    def _forget(self) -> None:
        self._watchdog.forget(self.pid)
        os.close(self._lifeline)
        self._lifeline = -1
