"""Keeps the standard streams of a command open, and reports output that cannot be written in one line.

If a program starts with a standard stream closed, the next file or connection that it opens gets the stream's number,
and the program writes into that. So a closed stream is replaced first. Using the replacement fails, which is correct.

Text that cannot be written to standard error is discarded, because it cannot be reported. A full disk below the log, or a
log reader that has ended, must not stop the work. A reader that hangs stops a process that logs, unless its wait is limited.
"""

import io
import os
import select
import sys
from contextlib import suppress
from typing import IO, Any

from ingest.domain.errors import UserError

# Seconds for the reader of the log, where waiting for longer would prevent a restart or a stop.
LOG_WAIT = 0.5
# Without a limit, because it may be set at any time.
_LOOK_AGAIN = 0.5


class CannotWrite(UserError):
    """The output cannot be written."""


class _Output(io.FileIO):
    """Standard output. `CannotWrite` does not include a reader that closes its pipe."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise CannotWrite(f"cannot write to standard output: {error.strerror}") from error


class _Errors(io.FileIO):
    """Standard error. Text that cannot be written counts as written, as does text for a full pipe that does not block.

    Attributes:
        wait: seconds for the reader to make room, or None for no limit. A signal handler may change it.
    """

    wait: float | None = None
    _full = False

    def write(self, data: Any, /) -> int:
        with suppress(OSError):
            if self._has_room():
                return super().write(data) or len(data)
        return len(data)

    def _has_room(self) -> bool:
        while self.wait is None:
            if not os.get_blocking(self.fileno()) or self._is_writable(_LOOK_AGAIN):
                return True
        # The waits of many lines would add up. After a wait in vain, it only checks until there is room again.
        self._full = not self._is_writable(0.0 if self._full else self.wait)
        return not self._full

    def _is_writable(self, within: float) -> bool:
        return bool(select.select([], [self], [], within)[1])


def secure() -> None:
    """Open closed streams, make failures of standard output raise `CannotWrite`, and ignore failures of standard error."""
    # In this order each gets its own number, the lowest free one. The first two can be neither read nor written.
    sys.stdin = sys.stdin or _open_nothing(0, os.O_WRONLY, "r")
    sys.stdout = _written_by(_Output, sys.stdout or _open_nothing(1, os.O_RDONLY, "w"))
    sys.stderr = _written_by(_Errors, sys.stderr or _open_nothing(2, os.O_WRONLY, "w"))


def wait_for_errors(seconds: float | None) -> None:
    """Wait no longer than this for the reader of standard error, then discard the rest. None means no limit.

    A pipe or a socket with room accepts a line of the log immediately, unless another process fills it at that moment.
    """
    raw = getattr(sys.stderr.buffer, "raw", sys.stderr.buffer)
    if isinstance(raw, _Errors):
        raw.wait = seconds


def has_room_for_output() -> bool:
    """Whether standard output accepts some bytes immediately. A full pipe does not."""
    return bool(select.select([], [sys.stdout], [], 0)[1])


def discard_unread() -> None:
    """Discard the output from now on if it is not read, because writing the rest would wait."""
    if not has_room_for_output():
        discard_output()


def discard_output() -> None:
    """Discard the data that is still buffered for standard output. Otherwise Python would report the error again at its exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _open_nothing(number: int, flags: int, mode: str) -> Any:
    opened = os.open(os.devnull, flags)
    if opened != number:
        os.dup2(opened, number)
        os.close(opened)
    os.set_inheritable(number, True)
    return open(number, mode, encoding="utf-8", closefd=False)


def _written_by(kind: type[io.FileIO], stream: Any) -> IO[str]:
    raw = kind(stream.fileno(), "w", closefd=False)
    return io.TextIOWrapper(
        # As Python does under PYTHONUNBUFFERED.
        raw if stream.write_through else io.BufferedWriter(raw),
        encoding=stream.encoding,
        # As Python does for standard error: a character that the locale's encoding lacks is shown as its escape.
        errors="backslashreplace",
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
