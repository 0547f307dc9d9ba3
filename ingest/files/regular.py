"""Opens files that users name, without waiting for a program that should write into a pipe in place of one.

A thread that waits for such a writer cannot be cancelled: the process would neither start nor stop.
"""

import errno
import os
import select
import stat
from pathlib import Path
from typing import BinaryIO

# Somebody may have to type a password before there is something to read.
_LONGEST_WAIT = 60.0


class NotRegular(OSError):
    """It is a pipe, a device or a socket."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "Not a regular file", str(path))


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it.

    Raises:
        NotRegular: it is something else.
        OSError: it cannot be opened.
    """
    file = _opened(path)
    if not stat.S_ISREG(_mode(file)):
        file.close()
        raise NotRegular(path)
    return file


def read_once(path: Path, largest: int, within: float = _LONGEST_WAIT) -> bytes:
    """Return the content of a file or of a pipe, which then has none any more; at most one byte above the limit.

    Args:
        path: such as `/dev/fd/63`, by which a shell names the output of a command.
        largest: bytes.
        within: seconds until there is something in a pipe.

    Raises:
        NotRegular: it is neither.
        OSError: it cannot be read.
    """
    with _opened(path) as file:
        if stat.S_ISFIFO(_mode(file)):
            ready = select.poll()
            ready.register(file, select.POLLIN)
            if not ready.poll(within * 1000):
                raise OSError(errno.EPIPE, f"It is a pipe, and nobody has written into it within {within:g} s")
            os.set_blocking(file.fileno(), True)
        elif not stat.S_ISREG(_mode(file)):
            raise NotRegular(path)
        return file.read(largest + 1)


def _opened(path: Path) -> BinaryIO:
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def _mode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_mode
