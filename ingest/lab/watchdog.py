"""Ends processes when the process that started them is gone.

A `with` block cannot run after SIGKILL, so a second, small process waits at the read end of a pipe whose write
end only the first one holds. End of file means that the first one has ended: the watchdog then ends the
processes that it watches and removes the directory. It has a session of its own, so that Ctrl-C in the terminal
does not reach it, and holds none of the first one's files open.

It identifies a process by its pid and its start time, so that a reused pid is left alone. If the watchdog itself
is killed, servers stop as usual with their `with` block; only SIGKILL is no longer covered.

The file is also the program that the second process runs: it needs nothing but the standard library.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

GRACE = 5.0  # seconds that a process gets to end by its own signal before it is killed
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}


class Watchdog:
    """Starts the watchdog process, tells it what to watch, and ends it.

    Args:
        removes: The directory to remove after the servers, or None.
    """

    def __init__(self, *, removes: Path | None = None) -> None:
        # -I and -S: no site-packages and nothing of the user's environment, so that it starts fast and reliably.
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
        if removes is not None:
            command.append(str(removes))
        read_end, self._pipe = os.pipe()  # closed at exec: no other child holds our end
        try:
            self._process = subprocess.Popen(
                command,
                stdin=read_end,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=_ENVIRONMENT,
                start_new_session=True,
            )
        finally:
            os.close(read_end)

    def watch(self, pid: int, ending: signal.Signals) -> None:
        """End this leader of a process group with this signal, should the caller end.

        Raises:
            BrokenPipeError: The watchdog is gone.
        """
        self._tell(f"watch {pid} {ending.value} {_start_time(pid)}\n")

    def forget(self, pid: int) -> None:
        """Stop watching a process that has ended, or is to be left running."""
        with suppress(BrokenPipeError):
            self._tell(f"forget {pid}\n")

    def dismiss(self) -> None:
        """End the watchdog without ending or removing anything."""
        with suppress(BrokenPipeError):
            self._tell("dismiss\n")
        self.close()

    def close(self) -> None:
        """Close the pipe, as if the caller had ended, and wait for the watchdog."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self._process.wait()

    def _tell(self, line: str) -> None:
        # One write below PIPE_BUF is atomic: threads may tell at the same time.
        os.write(self._pipe, line.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _start_time(pid: int) -> str:
    """When a process was started, as text that no later process with its pid has; empty if there is none."""
    try:
        # Field 22, in clock ticks since boot; the name in parentheses before it may contain anything.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    except ProcessLookupError:
        return ""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]  # where there is no /proc: macOS
    return subprocess.run(command, capture_output=True, text=True, check=False, env=_ENVIRONMENT).stdout.strip()


def _keep_watch(parent: int) -> dict[int, tuple[int, str]] | None:
    """Read what to watch until the parent is gone; None when dismissed."""
    watched: dict[int, tuple[int, str]] = {}
    unread = b""
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    while True:
        # A child that the parent forked holds the pipe open, too, so the parent itself is checked as well.
        if not poll.poll(1000):
            if os.getppid() != parent:
                return watched
            continue
        chunk = os.read(0, 65536)
        if not chunk:
            return watched
        *lines, unread = (unread + chunk).split(b"\n")
        for line in lines:
            match line.decode().split(maxsplit=3):
                case ["watch", pid, ending, started]:
                    watched[int(pid)] = (int(ending), started)
                case ["forget", pid]:
                    watched.pop(int(pid), None)
                case ["dismiss"]:
                    return None
                case _:
                    pass  # an incomplete line of a parent that was killed while writing


def _end(watched: dict[int, tuple[int, str]]) -> None:
    deadline = time.monotonic() + GRACE
    alive = {pid: known for pid, known in watched.items() if _start_time(pid) == known[1]}
    for pid, (ending, started) in watched.items():
        _signal(pid, started, ending)
        _signal(pid, started, signal.SIGCONT)  # a frozen process does not receive it
    while alive and time.monotonic() < deadline:
        time.sleep(0.01)
        # The whole group: initdb's child releases its shared memory only while its files exist.
        alive = {pid: known for pid, known in alive.items() if _has_group(pid)}
    for pid, (_, started) in alive.items():
        _signal(pid, started, signal.SIGKILL)


def _has_group(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _signal(pid: int, started: str, number: int) -> None:
    if _start_time(pid) == started:
        # Each leads a group of its own. A signal other than SIGKILL leaves the order of ending to the leader.
        send = os.killpg if number == signal.SIGKILL else os.kill
        with suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def _remove(directory: str) -> None:
    # The last of a server's children may still write for a moment.
    deadline = time.monotonic() + GRACE
    while os.path.lexists(directory) and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.02)


def _main(parent: str, *directories: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # it ends with its parent, not before
    watched = _keep_watch(int(parent))
    if watched is not None:
        _end(watched)
        for directory in directories:
            _remove(directory)


if __name__ == "__main__":
    _main(*sys.argv[1:])
