"""Runs a Python module as a process that is spoken to by lines.

It reads requests from standard input, where end of file says that the caller is gone, and answers on standard output;
its standard error goes to a log. It gets nothing of the caller's environment but what it is given.
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
    """In a program: wait for a message of its caller, on a line of standard input."""
    return msgspec.json.decode(sys.stdin.readline(), type=kind)


def reply(message: msgspec.Struct) -> None:
    """In a program: answer its caller with a line on standard output."""
    say(msgspec.json.encode(message).decode())


def say(line: str) -> None:
    """In a program: write a line to its caller."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Program(LoggedProcess):
    """`python -m MODULE`, running.

    Args:
        module: what is run.
        arguments: of its command line; no secrets, all users can read them.
        environment: the variables that it gets besides those that every process needs.
        home: its working directory, and where its log is.
        watchdog: ends it, should this process end.
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

    def tell(self, line: str) -> None:
        """Write it a line.

        Raises:
            LabFailed: it has ended.
        """
        try:
            self.stdin.write(f"{line}\n".encode())
            self.stdin.flush()
        except BrokenPipeError as error:
            raise self.failed("ended by itself") from error

    def read_line(self, within: float = TIMEOUT) -> str:
        """Wait for the next line that it writes.

        Raises:
            LabFailed: it has ended, or the time is over.
        """
        deadline = monotonic() + within
        while b"\n" not in self._unread:
            if not self.has_written(max(0.0, deadline - monotonic())):
                raise self.failed("does not answer")
            chunk = os.read(self.stdout.fileno(), 65536)
            if not chunk:
                raise self.failed("ended by itself")
            self._unread += chunk
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode()

    def send(self, message: msgspec.Struct) -> None:
        """Tell it a message, which it gets by `receive`."""
        self.tell(msgspec.json.encode(message).decode())

    def answer(self, kind: type[Message], within: float = TIMEOUT) -> Message:
        """Wait for its `reply`; errors as those of `read_line`."""
        return msgspec.json.decode(self.read_line(within), type=kind)

    def has_written(self, within: float = 0.0) -> bool:
        """Wait up to `within` seconds for something to read, which may be end of file."""
        poll = select.poll()
        poll.register(self.stdout.fileno(), select.POLLIN | select.POLLHUP)
        return bool(poll.poll(within * 1000))

    def kill(self) -> None:
        """End it with all its children, at once, and close both pipes."""
        super().kill()
        for pipe in (self.stdin, self.stdout):
            with suppress(BrokenPipeError):
                pipe.close()
