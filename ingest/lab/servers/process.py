"""One server as a process: started under the watchdog's eye, waited for by condition, ended for certain.

Two pipes close the gaps that pids leave:

- The *gate*: a shell waits for a line on its standard input before it becomes the server. The line is sent
  after the watchdog knows the pid. If the caller dies in between, the shell reads end of file and exits: there
  is no moment at which a server runs that nobody will end.
- The *lifeline*: the server and all its children inherit the write end and never use it. End of file at the
  read end says that the last of them has gone, so that a restart does not meet what a killed one left.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from typing import TYPE_CHECKING

from ingest.lab.servers.errors import ServerError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ingest.lab.servers.account import ReconciliationReport
    from ingest.lab.servers.watchdog import Watchdog

_KILL_SECONDS = 30.0

# Nothing of the caller's environment: no PGPORT or PGDATA, no secret.
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}
_GATE = ("/bin/sh", "-c", 'read -r go && exec "$@" </dev/null', "gate")


class ServerProcess:
    """A running server with its children.

    Args:
        command: The program and its arguments. Visible to all users of the machine: no secrets.
        directory: Its working directory.
        log: The file that its output is appended to.
        watchdog: Who ends it, should the caller vanish.
        ending: The signal that the watchdog uses.
        account: Another user to run it as, or None.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        directory: Path,
        log: Path,
        watchdog: Watchdog,
        ending: signal.Signals,
        account: ReconciliationReport | None = None,
    ) -> None:
        self._watchdog = watchdog
        self._lifeline, held = os.pipe()
        try:
            with log.open("ab") as output:
                self._process = subprocess.Popen(
                    [*_GATE, *command],
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    cwd=directory,
                    env=_ENVIRONMENT,
                    pass_fds=(held,),
                    start_new_session=True,  # Ctrl-C in the terminal must not end it before its clients
                    user=account.uid if account else None,
                    group=account.gid if account else None,
                    extra_groups=() if account else None,
                )
        except OSError as error:
            os.close(self._lifeline)
            raise ServerError(f"{command[0]} cannot be started: {error}") from error
        finally:
            os.close(held)
        self.pid = self._process.pid
        try:
            watchdog.watch(self.pid, ending)
            self._open_gate()
        except BrokenPipeError as error:
            self.kill()
            raise ServerError("the watchdog was killed; nothing is started without one") from error
        except BaseException:
            self.kill()
            raise

    def _open_gate(self) -> None:
        gate = self._process.stdin
        if gate is not None:
            with gate:
                gate.write(b"go\n")

    def has_ended(self, within: float = 0.0) -> bool:
        """Wait up to `within` seconds for the server and all its children to be gone."""
        if self._lifeline < 0:
            return True
        poll = select.poll()
        poll.register(self._lifeline, select.POLLIN | select.POLLHUP)
        if not poll.poll(within * 1000):
            return False
        self._process.wait()
        self._let_go()
        return True

    @property
    def exit_code(self) -> int | None:
        """How it ended, as subprocess says it; None while it runs."""
        return self._process.returncode

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the server, unless it has ended."""
        self._process.send_signal(number)

    def kill(self) -> None:
        """End it with SIGKILL, and wait until its children have noticed.

        Raises:
            ServerError: Some of them are still there.
        """
        if self.has_ended():
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        if self._process.poll() is None:  # not reaped yet: the pid is still its own
            os.killpg(self.pid, signal.SIGKILL)
        if not self.has_ended(within=_KILL_SECONDS):
            raise ServerError(f"process {self.pid} was killed, but its children live on")

    def release(self) -> None:
        """Leave it running: nobody here will wait for it or end it."""
        if self._lifeline >= 0:
            self._process.returncode = 0  # or Popen warns of a child that is still running
            self._let_go()

    def _let_go(self) -> None:
        self._watchdog.forget(self.pid)
        os.close(self._lifeline)
        self._lifeline = -1
