"""Opens files that settings name, without blocking when the path is a pipe that has no writer.

A thread blocked in such an open cannot be cancelled, so the process could neither start nor stop. A file that other users may change is not opened.
"""

import errno
import os
import select
import stat
from pathlib import Path
from typing import BinaryIO

from ingest.files.permissions import require_trusted

# Long enough for an operator to type a password before the pipe is written.
_LONGEST_WAIT = 60.0


class NotRegular(OSError):
    """The path is a pipe, a device or a socket."""

    def __init__(self, path: Path) -> None:
        super().__init__(errno.EINVAL, "Not a regular file", str(path))


def open_regular(path: Path) -> BinaryIO:
    """Open a file to read it.

    Raises:
        NotRegular: the path is not a regular file.
        OSError: the file cannot be opened.
    """
    file = _opened(path)
    if not stat.S_ISREG(_mode(file)):
        file.close()
        raise NotRegular(path)
    return file


def read_text(path: Path, largest: int, kind: str) -> str:
    """Return the text of a file in UTF-8. Some editors write a byte order mark before it.

    Args:
        path: of the file.
        largest: limit in bytes.
        kind: which larger files are not, for the error.

    Raises:
        ValueError: the file cannot be read or used. The message names it.
    """
    try:
        with open_regular(path) as file:
            content = file.read(largest + 1)
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    if len(content) > largest:
        raise ValueError(f"{path} is larger than {largest} bytes: it is not {kind}")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8 text") from error


def read_once(path: Path, largest: int, within: float = _LONGEST_WAIT) -> bytes:
    """Return the content of a file or pipe, at most one byte over the limit. Reading consumes a pipe.

    Args:
        path: may be a path like `/dev/fd/63`, which a shell uses for the output of a command.
        largest: limit in bytes.
        within: seconds to wait for the first data in a pipe.

    Raises:
        NotRegular: the path is neither a file nor a pipe.
        OSError: the file cannot be read.
    """
    with _opened(path) as file:
        if stat.S_ISFIFO(_mode(file)):
            ready = select.poll()
            ready.register(file, select.POLLIN)
            if not ready.poll(within * 1000):
                raise OSError(errno.EPIPE, f"No data in the pipe within {within:g} s")
            os.set_blocking(file.fileno(), True)
        elif not stat.S_ISREG(_mode(file)):
            raise NotRegular(path)
        return file.read(largest + 1)


def _opened(path: Path) -> BinaryIO:
    mode = path.stat().st_mode
    if stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
        require_trusted(path)
    return open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK))


def _mode(file: BinaryIO) -> int:
    return os.fstat(file.fileno()).st_mode
