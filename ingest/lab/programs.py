"""Runs a Python module as a process that exchanges lines with its caller.

The process reads requests from standard input and writes replies to standard output. End of file on standard input
means that the caller has ended. Standard error goes to a log. The caller's environment is not inherited.
"""

import os
import select
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TypeVar

import msgspec

from ingest.lab.commands import TIMEOUT, LoggedProcess
from ingest.lab.process import Streams
from ingest.lab.watchdog import Watchdog

Message = TypeVar("Message", bound=msgspec.Struct)


def receive(kind: type[Message]) -> Message:
    """In the program, read a message from the caller on a line of standard input."""
    return msgspec.json.decode(sys.stdin.readline(), type=kind)


def reply(message: msgspec.Struct) -> None:
    """In the program, write a message to the caller on a line of standard output."""
    write_line(msgspec.json.encode(message).decode())


def write_line(line: str) -> None:
    """In the program, write a line to the caller."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Program(LoggedProcess):
    """A running `python -m MODULE`.

    Args:
        module: name of the module.
        arguments: command-line arguments. All users can read them, so they must not contain secrets.
        environment: variables to set in addition to PATH and LC_ALL.
        home: working directory, which also contains the log.
        watchdog: ends the program if this process ends.
    """

    def __init__(
        self, module: str, *arguments: str, environment: Mapping[str, str], home: Path, watchdog: Watchdog
    ) -> None:
        self._unread = b""
        super().__init__(
            module,
            [sys.executable, "-m", module, *arguments],
            home=home,
            log=home / f"{module.rpartition('.')[2]}.log",
            watchdog=watchdog,
            environment=environment,
            streams=Streams.PIPED,
        )

    def send_line(self, line: str) -> None:
        """Write a line to the program's standard input.

        Raises:
            LabFailed: the program has ended.
        """
        try:
            self.stdin.write(f"{line}\n".encode())
            self.stdin.flush()
        except BrokenPipeError as error:
            raise self.failed("ended unexpectedly") from error

    def read_line(self, within: float = TIMEOUT) -> str:
        """Wait for the next line that the program writes.

        Raises:
            LabFailed: the program has ended, or did not write a line in time.
        """
        deadline = monotonic() + within
        while b"\n" not in self._unread:
            if not self.has_written(max(0.0, deadline - monotonic())):
                raise self.failed("does not respond")
            chunk = os.read(self.stdout.fileno(), 65536)
            if not chunk:
                raise self.failed("ended unexpectedly")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def send(self, message: msgspec.Struct) -> None:
        """Send a message, which the program reads with `receive`."""
        self.send_line(msgspec.json.encode(message).decode())

    def read_reply(self, kind: type[Message], within: float = TIMEOUT) -> Message:
        """Wait for a message that the program writes with `reply`, and raise the errors of `read_line`."""
        return msgspec.json.decode(self.read_line(within), type=kind)

    def has_written(self, within: float = 0.0) -> bool:
        """Wait up to `within` seconds for output or end of file."""
        poll = select.poll()
        poll.register(self.stdout.fileno(), select.POLLIN | select.POLLHUP)
        return bool(poll.poll(within * 1000))

    def kill(self) -> None:
        """End the program and its children with SIGKILL, and close both pipes."""
        super().kill()
        for pipe in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                pipe.close()
