"""Starts a server, a command of the service or a program of a bench, and makes sure that the process ends.

PIDs alone would leave two gaps, which two pipes close:

- The *gate*: a shell waits for a line on its standard input before it becomes the process. The line is sent
  after the PID has been passed to the watchdog. If the caller dies in between, the shell reads end of file and
  exits, so that every running process is watched.
- The *lifeline*: the process and all its children inherit the write end and never use it. The read end reaches
  end of file when the last of them has ended, so that a restarted server does not meet children of a killed one.
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

# The caller's environment may contain PGPORT, PGDATA or secrets and is not inherited.
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}
_NOTHING: Mapping[str, str] = MappingProxyType({})


class Streams(Enum):
    """Where a process reads and writes. The value is the script of the gate's shell."""

    LOGGED = 'read -r go && exec "$@" </dev/null'
    """Standard input is empty. Standard output and standard error go to the log."""
    PIPED = 'read -r go && exec "$@"'
    """Standard input and output are pipes to the caller. Standard error goes to the log."""


class ChildProcess:
    """A running process with its children, the leader of a process group.

    Attributes:
        pid: PID of the process itself.

    Args:
        command: the program and its arguments. All users can read them, so they must not contain secrets.
        directory: working directory.
        log: file to which the output is appended.
        watchdog: ends the process if the caller ends.
        ending: the signal that the watchdog sends.
        environment: variables to set in addition to PATH and LC_ALL.
        streams: where the process reads and writes.
        user: the user to run the process as, or None for the current user.
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
            raise ServerError("the watchdog was killed, and processes are only started under a watchdog") from error
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
        """The standard input, if the streams are pipes."""
        if self._process.stdin is None:
            raise AssertionError("the process was started with a pipe")
        return self._process.stdin

    @property
    def stdout(self) -> IO[bytes]:
        """The standard output, if the streams are pipes."""
        if self._process.stdout is None:
            raise AssertionError("the process was started with a pipe")
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
        """The exit code in the form of `subprocess`, or None while the process runs."""
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process unless it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End the process with SIGKILL, and wait until its children have ended.

        Raises:
            ServerError: some children are still running.
        """
        if self.has_ended():
            return
        if self._process.poll() is None:  # not reaped yet, so that the PID cannot have been reused
            os.killpg(self.pid, signal.SIGKILL)
        # Only now, because a reading process would end at end of file before it is killed.
        with suppress(BrokenPipeError):
            self.stdin.close()
        if not self.has_ended(within=_KILL_SECONDS):
            raise ServerError(f"process {self.pid} was killed, but its children are still running")

    def release(self) -> None:
        """Leave the process running, and neither wait for it nor end it."""
        if self._lifeline >= 0:
            self._process.returncode = 0  # otherwise, Popen warns that a child is still running
            self._forget()

    def _forget(self) -> None:
        self._watchdog.forget(self.pid)
        os.close(self._lifeline)
        self._lifeline = -1
