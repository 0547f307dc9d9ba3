"""Ends processes when the process that started them has ended.

The end of a `with` block does not run after SIGKILL. Therefore, a second, small process waits at the read end of a
pipe, and only the first process holds the write end open. End of file means that the first process has ended. The
watchdog then ends the watched processes and removes the directory. It runs in its own session, so that Ctrl-C in the
terminal does not reach it, and it does not hold any files of the first process open.

The watchdog identifies a process by PID and start time, so that it does not end another process with a reused PID.
If the watchdog itself is killed, servers still stop at the end of their `with` block, except after SIGKILL.

This file is also the program of the second process and uses only the standard library.
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
    from typing import Self

GRACE = 5.0  # seconds between the first signal to a process and SIGKILL
_ENVIRONMENT = {"LC_ALL": "C", "PATH": os.defpath}


class Watchdog:
    """Starts the watchdog process, sends it the processes to watch, and ends it.

    Args:
        removes: directory to remove after the servers have ended, or None.
    """

    def __init__(self, *, removes: Path | None = None) -> None:
        # -I and -S skip site-packages and the user's environment for a fast and reliable start.
        command = [sys.executable, "-I", "-S", __file__, str(os.getpid())]
        if removes is not None:
            command.append(str(removes))
        read_end, self._pipe = os.pipe()  # closed at exec, so that no other child holds our end open
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
        """End this leader of a process group with this signal if the caller ends.

        Raises:
            BrokenPipeError: the watchdog has ended.
        """
        self._send(f"watch {pid} {ending.value} {_start_time(pid)}\n")

    def forget(self, pid: int) -> None:
        """Stop watching a process that has ended or is to be left running."""
        with suppress(BrokenPipeError):
            self._send(f"forget {pid}\n")

    def dismiss(self) -> None:
        """End the watchdog without ending processes or removing the directory."""
        with suppress(BrokenPipeError):
            self._send("dismiss\n")
        self.close()

    def close(self) -> None:
        """Close the pipe as if the caller had ended, and wait for the watchdog."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        self._process.wait()

    def _send(self, line: str) -> None:
        # A write below PIPE_BUF is atomic, so that threads can write concurrently.
        os.write(self._pipe, line.encode())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _start_time(pid: int) -> str:
    """The start time of a process, which distinguishes it from later ones with its PID, or an empty text."""
    try:
        # Field 22, in clock ticks since boot. The name in parentheses before it can contain any character.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[19]
    except FileNotFoundError:
        if Path("/proc/self/stat").exists():
            return ""
    except ProcessLookupError:
        return ""
    command = ["ps", "-o", "lstart=", "-p", str(pid)]  # macOS has no /proc
    return subprocess.run(command, capture_output=True, text=True, check=False, env=_ENVIRONMENT).stdout.strip()


def _keep_watch(parent: int) -> dict[int, tuple[int, str]] | None:
    """Read the processes to watch until the parent has ended, or return None if dismissed."""
    watched: dict[int, tuple[int, str]] = {}
    unread = b""
    poll = select.poll()
    poll.register(0, select.POLLIN | select.POLLHUP)
    while True:
        # A forked child of the parent also holds the pipe open, so the parent itself is checked as well.
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
    alive = {pid: process for pid, process in watched.items() if _start_time(pid) == process[1]}
    for pid, (ending, started) in watched.items():
        _signal(pid, started, ending)
        _signal(pid, started, signal.SIGCONT)  # a frozen process does not receive it
    while alive and time.monotonic() < deadline:
        time.sleep(0.01)
        # Wait for the whole group, because initdb's child can release its shared memory only while its files exist.
        alive = {pid: process for pid, process in alive.items() if _has_group(pid)}
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
        # Each process leads its own group. After a signal other than SIGKILL, the leader ends its children in order.
        send = os.killpg if number == signal.SIGKILL else os.kill
        with suppress(ProcessLookupError, PermissionError):
            send(pid, number)


def _remove(directory: str) -> None:
    # A server's last child may still write for a moment.
    deadline = time.monotonic() + GRACE
    while os.path.lexists(directory) and time.monotonic() < deadline:
        shutil.rmtree(directory, ignore_errors=True)
        time.sleep(0.02)


def _main(parent: str, *directories: str) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # the watchdog must not end before its parent
    watched = _keep_watch(int(parent))
    if watched is not None:
        _end(watched)
        for directory in directories:
            _remove(directory)


if __name__ == "__main__":
    _main(*sys.argv[1:])
